/* rand_augment.c -- the words of "rand-m9-mstd0.5-inc1", magnitudes to arguments, the draw. */
#include "data/augment/rand_augment.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TOP 10.0 /* the largest magnitude */

/* One word of the text, "m9" or "mstd0.5", by the first key that begins it and leaves a number. */
static polar_status parse_word(pl_rand_augment *ra, int *increasing, const char *word, size_t n,
                               const char *text)
{
    char copy[32], *end;
    PL_NEED(n > 0 && n < sizeof copy, POLAR_E_ARG, "RandAugment '%s': an empty or endless word", text);
    memcpy(copy, word, n);
    copy[n] = 0;
    size_t letters = strspn(copy, "abcdefghijklmnopqrstuvwxyz");
    double v = strtod(copy + letters, &end);
    PL_NEED(copy[letters] && !*end && isfinite(v), POLAR_E_ARG, "RandAugment '%s': '%s' wants a number", text,
            copy);
    copy[letters] = 0;
    int whole = v == floor(v);
    if (!strcmp(copy, "m") && v >= 0 && v <= TOP) ra->magnitude = v;
    else if (!strcmp(copy, "mstd") && v >= 0 && v <= 100) ra->std = v;
    else if (!strcmp(copy, "n") && whole && v >= 0 && v <= PL_DRAW_LAYERS) ra->layers = (int)v;
    else if (!strcmp(copy, "p") && v >= 0 && v <= 1) ra->prob = v;
    else if (!strcmp(copy, "inc") && v == 1) *increasing = 1;
    else
        return PL_FAIL(POLAR_E_ARG,
                       "RandAugment '%s': no '%s' of %g (there are: m 0 to 10, n 0 to %d, p 0 to 1, mstd 0 "
                       "to 100, inc 1)",
                       text, copy, v, PL_DRAW_LAYERS);
    return POLAR_OK;
}

polar_status pl_rand_augment_parse(pl_rand_augment *out, const char *text)
{
    pl_rand_augment ra = {.layers = 2, .magnitude = TOP, .prob = 0.5};
    int increasing = 0;
    PL_NEED(!strncmp(text, "rand", 4) && (text[4] == '-' || !text[4]), POLAR_E_ARG,
            "'%s' is not RandAugment's: it begins with rand-, for example rand-m9-mstd0.5-inc1", text);
    for (const char *p = text + 4; *p == '-';) {
        size_t n = strcspn(++p, "-");
        PL_TRY(parse_word(&ra, &increasing, p, n, text));
        p += n;
    }
    PL_NEED(increasing, POLAR_E_ARG, "RandAugment '%s': only the increasing operations are here: add -inc1",
            text);
    *out = ra;
    return POLAR_OK;
}

double pl_rand_augment_arg(pl_image_op op, double magnitude, int negate)
{
    double level = magnitude / TOP, sign = negate ? -1 : 1, v;
    switch (op) {
    case PL_IMAGE_ROTATE: return sign * (level * 30);
    case PL_IMAGE_POSTERIZE: return 4 - floor(level * 4);
    case PL_IMAGE_SOLARIZE: return 256 - fmin(256, floor(level * 256));
    case PL_IMAGE_SOLARIZE_ADD: return fmin(128, floor(level * 110));
    case PL_IMAGE_COLOR:
    case PL_IMAGE_CONTRAST:
    case PL_IMAGE_BRIGHTNESS:
    case PL_IMAGE_SHARPNESS: return v = 1 + sign * (level * 0.9), v > 0.1 ? v : 0.1;
    case PL_IMAGE_SHEAR_X:
    case PL_IMAGE_SHEAR_Y: return sign * (level * 0.3);
    case PL_IMAGE_TRANSLATE_X:
    case PL_IMAGE_TRANSLATE_Y: return sign * (level * 0.45);
    default: return 0;
    }
}

int pl_rand_augment_draw(pl_image_op_args ops[PL_DRAW_LAYERS], const pl_rand_augment *ra, pl_draw_key key)
{
    int n = 0;
    for (int l = 0; l < ra->layers; l++) {
        pl_u4 r = pl_augment_draw(key, PL_DRAW_LAYER + 2 * l);
        if (pl_uniform_f64(r.y, r.z) > ra->prob) continue;
        double z = pl_normal_from(pl_augment_draw(key, PL_DRAW_LAYER + 2 * l + 1)).a,
               magnitude = fmax(0, fmin(ra->magnitude + ra->std * z, TOP));
        pl_image_op op = (pl_image_op)pl_uniform_below(r.x, PL_IMAGE_OPS);
        ops[n++] = (pl_image_op_args){.op = op, .arg = pl_rand_augment_arg(op, magnitude, (int)(r.w >> 31))};
    }
    return n;
}
