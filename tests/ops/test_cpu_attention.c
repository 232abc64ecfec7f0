/* test_cpu_attention.c -- what `cpu` promises about the fused attention beyond the op cases (test_ops.c): the
 * same bits
 *
 *     with any number of threads, alone, in a batch and elsewhere in it, and on every instruction set; and
 * nothing is written outside the results.
 *
 * Products differ where the instruction sets do: the baseline has no fma, the tile unit takes bf16 in its own
 * order. Against its formula: test_attention.c.
 */
#include "cpu_op_bits.h"

enum { TOKENS = 45, HEADS = 2, WIDTH = 2 * 20 };

static void run_attention(pl_queue *q, const matrix *x)
{
    PL_CALL(attention, q, .O = x[0].m, .lse = x[1].m, .QKV = x[2].m, .heads = HEADS);
}

static void run_attention_back(pl_queue *q, const matrix *x)
{
    PL_CALL(attention_back, q, .dQKV = x[0].m, .QKV = x[1].m, .O = x[2].m, .lse = x[3].m, .dO = x[4].m,
            .heads = HEADS);
}

static const cpu_op ops[] = {
    {"attention", 3, 2, {TOKENS, HEADS, TOKENS}, {WIDTH, TOKENS, 3 * WIDTH}, run_attention, 1 << 1, 1},
    {"attention_back",
     5,
     1,
     {TOKENS, TOKENS, TOKENS, HEADS, TOKENS},
     {3 * WIDTH, 3 * WIDTH, WIDTH, TOKENS, WIDTH},
     run_attention_back,
     1 << 3,
     1},
};

static void test_all(pl_isa isa)
{
    for (int i = 0; i < COUNT(ops); i++) test_op(isa, &ops[i]);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    machines_run(test_all);
    return test_end();
}
