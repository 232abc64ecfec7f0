/* optim_layout.c -- reading and writing options of callers compiled with other headers.
 *
 * polar_optim_opts holds a polar_rule, which holds polar_map_opts; each grows at its own tail, and what
 * follows it in the struct around it moves. So the options are a row of pieces, every one of which begins
 * where the one before it ends:
 *
 *     struct_size | rule: momentum ... eps | map | rule, the rest | lr ... aux_eps | schedule |
 *         matrix_names ...
 *
 * The pieces' sizes follow from sizeof of the five structs, which the caller's headers hand over as a
 * polar_optim_layout. What a piece of 0.1 held, every caller has; the table below says how much that is.
 */
#include "optim/optim_layout.h"

#include <string.h>

#include "compose/map.h"

typedef struct piece {
    const char *name;
    size_t size, least; /* bytes now (in some layout), bytes in 0.1 */
} piece;

enum {
    PIECE_SIZE,
    PIECE_RULE,
    PIECE_MAP,
    PIECE_RULE_TAIL,
    PIECE_NUMBERS,
    PIECE_SCHEDULE,
    PIECE_TAIL,
    PIECES
};
enum { RULE_FIRST = PIECE_RULE, RULE_LAST = PIECE_RULE_TAIL };

#define HEAD    offsetof(polar_optim_opts, rule)
#define NUMBERS (offsetof(polar_optim_opts, schedule) - PL_SIZE_UP_TO(polar_optim_opts, rule))
#define NAMES   (PL_SIZE_UP_TO(polar_optim_opts, members) - PL_SIZE_UP_TO(polar_optim_opts, schedule))

static const polar_optim_layout own_layout = POLAR_OPTIM_LAYOUT_INIT;

static void cut(piece out[PIECES], const polar_optim_layout *l)
{
    size_t rule_head = offsetof(polar_rule, map), rule_tail = l->rule - rule_head - l->map_opts;
    size_t before_tail = HEAD + l->rule + NUMBERS + l->schedule;
    piece pieces[PIECES] = {
        [PIECE_SIZE] = {"polar_optim_opts.struct_size", HEAD, HEAD},
        [PIECE_RULE] = {"polar_rule", rule_head, rule_head},
        [PIECE_MAP] = {"polar_map_opts", l->map_opts, PL_MAP_OPTS_0_1},
        [PIECE_RULE_TAIL] = {"polar_rule", rule_tail, 0},
        [PIECE_NUMBERS] = {"polar_optim_opts", NUMBERS, NUMBERS},
        [PIECE_SCHEDULE] = {"polar_schedule", l->schedule, PL_SCHEDULE_0_1},
        [PIECE_TAIL] = {"polar_optim_opts", l->optim_opts - before_tail, NAMES},
    };
    memcpy(out, pieces, sizeof pieces);
}

polar_status pl_layout_read(polar_optim_layout *out, const polar_optim_layout *in)
{
    PL_NEED(in, POLAR_E_ARG, "no polar_optim_layout (POLAR_OPTIM_LAYOUT_INIT makes one)");
    PL_TRY(pl_sized_read("polar_optim_layout", out, sizeof *out, in, in->struct_size,
                         PL_SIZE_UP_TO(polar_optim_layout, optim_opts)));
    size_t word = _Alignof(polar_optim_opts);
    PL_NEED(out->map_opts >= PL_MAP_OPTS_0_1 && out->map_opts % word == 0, POLAR_E_ARG,
            "a polar_map_opts of %zu bytes", out->map_opts);
    PL_NEED(out->schedule >= PL_SCHEDULE_0_1 && out->schedule % word == 0, POLAR_E_ARG,
            "a polar_schedule of %zu bytes", out->schedule);
    PL_NEED(out->param >= PL_PARAM_0_1 && out->param % word == 0, POLAR_E_ARG, "a polar_param of %zu bytes",
            out->param);
    PL_NEED(out->group == 0 || (out->group >= PL_GROUP_0_2 && out->group % word == 0), POLAR_E_ARG,
            "a polar_group of %zu bytes", out->group);
    PL_NEED(out->block == 0 || (out->block >= PL_BLOCK_0_3 && out->block % word == 0), POLAR_E_ARG,
            "a polar_block of %zu bytes", out->block);
    PL_NEED(out->rule >= offsetof(polar_rule, map) + out->map_opts && out->rule % word == 0, POLAR_E_ARG,
            "a polar_rule of %zu bytes that holds a polar_map_opts of %zu", out->rule, out->map_opts);
    PL_NEED(out->optim_opts >= HEAD + out->rule + NUMBERS + out->schedule + NAMES, POLAR_E_ARG,
            "a polar_optim_opts of %zu bytes that holds a polar_rule of %zu and a polar_schedule of %zu",
            out->optim_opts, out->rule, out->schedule);
    return POLAR_OK;
}

/* The map's own struct_size may say less than its place has room for. */
static polar_status read_map(void *out, size_t room, const char *in)
{
    polar_map_opts map;
    size_t claimed;
    memcpy(&claimed, in + offsetof(polar_map_opts, struct_size), sizeof claimed);
    PL_NEED(claimed <= room, POLAR_E_ARG,
            "polar_map_opts.struct_size is %zu where the program's headers have %zu bytes: start from "
            "POLAR_MAP_OPTS_INIT",
            claimed, room);
    PL_TRY(pl_sized_read("polar_map_opts", &map, sizeof map, in, claimed, PL_MAP_OPTS_0_1));
    map.struct_size = sizeof map;
    memcpy(out, &map, sizeof map);
    return POLAR_OK;
}

/* Pieces [first, last], theirs by their layout. */
static polar_status read_pieces(void *out, const void *in, int first, int last,
                                const polar_optim_layout *layout)
{
    piece ours[PIECES], theirs[PIECES];
    char *to = out;
    const char *from = in;
    cut(ours, &own_layout);
    cut(theirs, layout);
    for (int i = first; i <= last; i++) {
        if (i == PIECE_MAP) PL_TRY(read_map(to, theirs[i].size, from));
        else PL_TRY(pl_sized_read(ours[i].name, to, ours[i].size, from, theirs[i].size, ours[i].least));
        to += ours[i].size;
        from += theirs[i].size;
    }
    return POLAR_OK;
}

polar_status pl_optim_opts_read(polar_optim_opts *out, const polar_optim_opts *in,
                                const polar_optim_layout *layout)
{
    polar_optim_layout given = *layout;
    size_t least = HEAD + given.rule + NUMBERS + given.schedule + NAMES;
    PL_NEED(in->struct_size >= least && in->struct_size <= given.optim_opts, POLAR_E_ARG,
            "polar_optim_opts.struct_size is %zu; with the program's headers it is %zu, and at least %zu: "
            "start from POLAR_OPTIM_OPTS_INIT",
            in->struct_size, given.optim_opts, least);
    given.optim_opts = in->struct_size; /* the caller may say that less is set than there is room for */
    PL_TRY(read_pieces(out, in, 0, PIECES - 1, &given));
    out->struct_size = sizeof *out;
    return POLAR_OK;
}

polar_status pl_rule_read(polar_rule *out, const polar_rule *in, const polar_optim_layout *layout)
{
    return read_pieces(out, in, RULE_FIRST, RULE_LAST, layout);
}

polar_status pl_group_read(polar_group *out, const polar_group *groups, int64_t i,
                           const polar_optim_layout *layout)
{
    PL_NEED(layout->group, POLAR_E_ARG,
            "groups from headers that do not know their size (POLAR_OPTIM_LAYOUT_INIT does)");
    return pl_sized_read("polar_group", out, sizeof *out, (const char *)groups + (size_t)i * layout->group,
                         layout->group, PL_GROUP_0_2);
}

/* Pieces [first, last]: all must fit before the first is written. Struct sizes inside become the caller's. */
static polar_status write_pieces(void *out, const void *in, int first, int last,
                                 const polar_optim_layout *layout)
{
    piece ours[PIECES], theirs[PIECES];
    cut(ours, &own_layout);
    cut(theirs, layout);
    for (int writing = 0; writing < 2; writing++) {
        char *to = out;
        const char *from = in;
        for (int i = first; i <= last; i++) {
            const char *name = ours[i].name;
            size_t size = theirs[i].size;
            if (writing) PL_TRY(pl_sized_write(name, to, size, from, ours[i].size, ours[i].least));
            else PL_TRY(pl_sized_fits(name, size, from, ours[i].size, ours[i].least));
            if (writing && i == PIECE_MAP)
                memcpy(to + offsetof(polar_map_opts, struct_size), &layout->map_opts,
                       sizeof layout->map_opts);
            to += size;
            from += ours[i].size;
        }
    }
    return POLAR_OK;
}

polar_status pl_optim_opts_write(polar_optim_opts *out, const polar_optim_opts *in,
                                 const polar_optim_layout *layout)
{
    PL_TRY(write_pieces(out, in, 0, PIECES - 1, layout));
    out->struct_size = layout->optim_opts;
    return POLAR_OK;
}

polar_status pl_rule_write(polar_rule *out, const polar_rule *in, const polar_optim_layout *layout)
{
    return write_pieces(out, in, RULE_FIRST, RULE_LAST, layout);
}

polar_status pl_param_read(polar_param *out, const polar_param *params, int64_t i,
                           const polar_optim_layout *layout)
{
    const char *theirs = (const char *)params + (size_t)i * layout->param;
    return pl_sized_read("polar_param", out, sizeof *out, theirs, layout->param, PL_PARAM_0_1);
}

polar_status pl_block_read(polar_block *out, const polar_block *blocks, int64_t i,
                           const polar_optim_layout *layout)
{
    PL_NEED(layout->block, POLAR_E_ARG,
            "blocks from headers that do not know their size (POLAR_OPTIM_LAYOUT_INIT does)");
    return pl_sized_read("polar_block", out, sizeof *out, (const char *)blocks + (size_t)i * layout->block,
                         layout->block, PL_BLOCK_0_3);
}
