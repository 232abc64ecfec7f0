/* sound_store.c -- see sound_store.h. */
#include "sound_store.h"

#include <inttypes.h>

#include "base/json_read.h"

#define MOST_NAMED 8

polar_status sound_store_open(pl_store **out, const cli_context *ctx, const char *path)
{
    int64_t count = 0;
    PL_TRY(pl_store_open(out, path, PL_STORE_SOUND));
    const pl_store_damage *runs = pl_store_damaged(*out, &count);
    if (!count) return POLAR_OK;
    fprintf(ctx->log, "note: %" PRId64 " run%s of the store '%s' %s damaged and count%s as not done:", count,
            count == 1 ? "" : "s", pl_text_shown(path).text, count == 1 ? "is" : "are",
            count == 1 ? "s" : "");
    for (int64_t i = 0; i < count && i < MOST_NAMED; i++)
        fprintf(ctx->log, "%s %.12s (%s)", i ? "," : "", runs[i].run, runs[i].what);
    if (count > MOST_NAMED) fprintf(ctx->log, " and %" PRId64 " more", count - MOST_NAMED);
    fprintf(ctx->log, "; `polar store check` names their specs, `polar run SPEC` makes them again\n");
    return POLAR_OK;
}
