/* test_pair_message.c -- messages with weights from the distance, forward and backward, on the device
 * argv[1]: the fused ops pair_message and pair_message_back where it has them, and their composition of plain
 * ops, against a model with its bounds (message_model.h); members alone and together, gaps between rows,
 * refusals.
 */
#include "compose/message.h"
#include "message_model.h"
#include "op_gaps.h"

static const char *const names[ALL] = {"S",  "V",  "D",  "w0", "b0",  "W2",  "b2",  "dYs", "dYv",
                                       "Ys", "Yv", "dS", "dV", "dw0", "db0", "dW2", "db2"};

static pl_args_pair_message forward_of(const message *t)
{
    const pl_mat *m = t->m;
    return (pl_args_pair_message){.Ys = m[YS],
                                  .Yv = m[YV],
                                  .S = m[S],
                                  .V = m[V],
                                  .D = m[D],
                                  .w0 = m[W0],
                                  .b0 = m[B0],
                                  .W2 = m[W2],
                                  .b2 = m[B2],
                                  .points = t->s.N,
                                  .alpha = t->s.alpha};
}

static pl_args_pair_message_back backward_of(const message *t)
{
    const pl_mat *m = t->m;
    return (pl_args_pair_message_back){.dS = m[DS],
                                       .dV = m[DV],
                                       .dw0 = m[DW0],
                                       .db0 = m[DB0],
                                       .dW2 = m[DW2],
                                       .db2 = m[DB2],
                                       .dYs = m[GS],
                                       .dYv = m[GV],
                                       .S = m[S],
                                       .V = m[V],
                                       .D = m[D],
                                       .w0 = m[W0],
                                       .b0 = m[B0],
                                       .W2 = m[W2],
                                       .b2 = m[B2],
                                       .points = t->s.N,
                                       .alpha = t->s.alpha};
}

static int has_fused(const message *t)
{
    const pl_args_pair_message forward = forward_of(t);
    const pl_args_pair_message_back backward = backward_of(t);
    return pl_queue_serves(t->q, PL_OP_pair_message, &forward) &&
           pl_queue_serves(t->q, PL_OP_pair_message_back, &backward);
}

static void enqueue_fused(message *t)
{
    const pl_args_pair_message forward = forward_of(t);
    const pl_args_pair_message_back backward = backward_of(t);
    pl_call_pair_message(t->q, &forward);
    pl_call_pair_message_back(t->q, &backward);
}

static void enqueue_composed(message *t)
{
    const pl_mat *m = t->m;
    pl_message k = {
        .D = m[D], .w0 = m[W0], .b0 = m[B0], .W2 = m[W2], .b2 = m[B2], .points = t->s.N, .alpha = t->s.alpha};
    pl_message_grads g = {.w0 = m[DW0], .b0 = m[DB0], .W2 = m[DW2], .b2 = m[DB2]};
    pl_message_forward_composed(t->q, m[YS], m[YV], m[S], m[V], &k);
    pl_message_backward_composed(t->q, m[DS], m[DV], &g, m[GS], m[GV], m[S], m[V], &k);
}

static void message_run(message *t, int fused)
{
    const pl_mat *m = t->m;
    if (fused) enqueue_fused(t);
    else enqueue_composed(t);
    for (int i = INPUTS; i < ALL; i++) polar_queue_download(t->q, t->host[i], m[i].data, t->bytes[i]);
    TEST_TRY(polar_queue_sync(t->q));
}

static void against_model(message *t, const model *k, const char *how)
{
    double worst = 0;
    int where = YS;
    for (int i = INPUTS; i < ALL; i++)
        for (int64_t b = 0, at = 0; b < t->m[i].batch; b++)
            for (int64_t r = 0; r < t->m[i].rows; r++)
                for (int64_t c = 0; c < t->m[i].cols; c++, at++) {
                    double share =
                        (double)(fabsl(get(t, i, b, r, c) - k->out[i][at].x) / (1.02L * k->out[i][at].e));
                    if (!(share <= worst)) worst = share, where = i;
                }
    char what[120], why[64];
    snprintf(what, sizeof what, "%s %s %lldx%lld clouds of %lld, h %lld%s", how, polar_dtype_name(t->s.dtype),
             (long long)t->s.E, (long long)t->s.B, (long long)t->s.N, (long long)t->s.h,
             t->s.gap ? ", strided" : "");
    snprintf(why, sizeof why, "share of the bound; %s", names[where]);
    test_bound(what, worst, 1, why);
}

/* Bytes of member `e`'s results in t that differ from those of the only member of one; what lies between rows
 * is left as it was. */
static int64_t member_differs(const message *t, int64_t e, const message *one)
{
    int64_t differ = 0;
    for (int i = INPUTS; i < ALL; i++) {
        int64_t per = one->m[i].batch;
        for (int64_t b = 0; b < per; b++)
            for (int64_t r = 0; r < t->m[i].rows; r++)
                for (int64_t c = 0; c < t->m[i].cols; c++) {
                    size_t n = polar_dtype_size(t->s.dtype);
                    differ += memcmp(t->host[i] + (size_t)offset(t, i, e * per + b, r, c) * n,
                                     one->host[i] + (size_t)offset(one, i, b, r, c) * n, n) != 0;
                }
    }
    return differ;
}

static void every_shape(const char *device)
{
    /* the last ones: whole warps of points and channels, more points than a block has at a time, distances
     * beyond any table */
    static const shape shapes[] = {{1, 1, 1, 1, 0, 0, 1, 0},          {2, 3, 5, 4, 0, 0, 0.2, 0},
                                   {1, 2, 9, 16, 0, 0, 1.0 / 9, 0},   {2, 2, 17, 5, 3, 0, 1.0 / 17, 0},
                                   {3, 1, 8, 33, 1, 0, 0.125, 0},     {1, 1, 33, 8, 0, 0, -0.3, 0},
                                   {1, 3, 2, 3, 2, 0, 0.5, 0},        {2, 1, 64, 32, 0, 0, 1.0 / 64, 0},
                                   {1, 1, 70, 20, 1, 0, 1.0 / 70, 0}, {2, 3, 11, 17, 0, 0, 0.1, 60}};
    int64_t mates = 0, touched = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int wide = 0; wide < 2; wide++) {
            shape s = shapes[i];
            message t;
            model k;
            s.dtype = wide ? POLAR_DTYPE_F64 : POLAR_DTYPE_F32;
            message_open(&t, device, &s, 0);
            model_make(&k, &t);
            for (int fused = 0; fused < (has_fused(&t) ? 2 : 1); fused++) {
                message_run(&t, fused);
                against_model(&t, &k, fused ? "fused" : "composed");
                touched += gaps_touched(t.m, t.host, INPUTS, ALL);
                for (int64_t e = 0; s.E > 1 && e < s.E; e++) {
                    message one;
                    shape alone = s;
                    alone.E = 1;
                    message_open(&one, device, &alone, e);
                    message_run(&one, fused);
                    mates += member_differs(&t, e, &one);
                    message_close(&one);
                }
            }
            model_free(&k);
            message_close(&t);
        }
    test_exact("a member alone has the same bits", mates);
    test_exact("nothing is written between rows", touched);
}

/* What is no message is refused, by a sentence that names the op, and nothing is written. */
static void refusals(const char *device)
{
    enum { ROWS, COLS, BATCH, ONTO };
    static const struct {
        int operand, kind;
    } wrong[] = {{YS, ROWS}, {YV, COLS},  {S, COLS},   {V, ROWS},  {D, ROWS},  {D, BATCH},
                 {W0, ROWS}, {W0, BATCH}, {B0, COLS},  {W2, COLS}, {B2, COLS}, {YS, ONTO},
                 {DS, ROWS}, {DW2, ROWS}, {DB0, COLS}, {GS, COLS}, {DV, ONTO}, {DW0, BATCH}};
    shape s = {2, 3, 5, 4, 0, POLAR_DTYPE_F32, 0.2, 0};
    message t;
    int64_t accepted = 0, unnamed = 0, n = (int64_t)(sizeof wrong / sizeof *wrong);
    message_open(&t, device, &s, 0);
    for (int64_t i = 0; has_fused(&t) && i < n; i++) {
        pl_mat right[ALL], *m = &t.m[wrong[i].operand];
        memcpy(right, t.m, sizeof right);
        switch (wrong[i].kind) {
        case ROWS: m->rows -= 1; break;
        case COLS: m->cols -= 1; break;
        case BATCH: m->batch += 1; break;
        default: m->data = (char *)t.m[wrong[i].operand == DV ? V : S].data + 4; break;
        }
        enqueue_fused(&t);
        polar_status st = polar_queue_sync(t.q);
        accepted += st != (wrong[i].kind == ONTO ? POLAR_E_ARG : POLAR_E_SHAPE);
        unnamed += !strstr(polar_error_message(), "pair_message");
        memcpy(t.m, right, sizeof right);
    }
    if (has_fused(&t))
        test_true("fused: wrong shapes and overlaps are refused", accepted == 0 && unnamed == 0,
                  "%lld calls, %lld accepted, %lld unnamed", (long long)n, (long long)accepted,
                  (long long)unnamed);
    message_close(&t);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    every_shape(device);
    refusals(device);
    return test_end();
}
