/* store_resum.h -- a store changed by SQL, with its checksums and counts made anew: a checksum is no secret,
 * and whoever writes a store to get in makes them right. Damage is what does not. */
#ifndef POLAR_STORE_RESUM_H
#define POLAR_STORE_RESUM_H

#include "store/store_impl.h"

/* Whatever tables there still are. */
static inline void store_resum(sqlite3 *db)
{
    static const char *const updates[] = {
        "DELETE FROM member WHERE spec NOT IN (SELECT name FROM spec) OR run NOT IN (SELECT id FROM run)",
        "UPDATE run SET results = (SELECT count(*) FROM result WHERE run = id), epochs = (SELECT count(*) "
        "FROM epoch WHERE run = id),"
        " gauges = (SELECT count(*) FROM gauge WHERE run = id) WHERE state <> 'planned'",
        "UPDATE spec SET members = (SELECT count(*) FROM member WHERE spec = name)",
        "UPDATE spec SET sum = " PL_SUM_SPEC,
        "UPDATE config SET sum = " PL_SUM_CONFIG,
        "UPDATE run SET sum = " PL_SUM_RUN,
        "UPDATE member SET sum = " PL_SUM_MEMBER,
        "UPDATE epoch SET sum = " PL_SUM_EPOCH,
        "UPDATE result SET sum = " PL_SUM_RESULT,
        "UPDATE gauge SET sum = " PL_SUM_GAUGE,
    };
    pl_store s = {.db = db};
    if (pl_sum_register(&s) != POLAR_OK) exit(1);
    for (size_t i = 0; i < sizeof updates / sizeof *updates; i++)
        (void)sqlite3_exec(db, updates[i], NULL, NULL, NULL);
}

#endif
