/* test_sha256.c -- SHA-256 against the vectors of FIPS 180-4, and against itself fed in pieces. */
#include "test.h"

#include <string.h>

#include "base/sha256.h"

static void hash(char out[PL_SHA256_HEX], const char *text, size_t n, size_t piece)
{
    pl_sha256 h = pl_sha256_begin();
    for (size_t i = 0; i < n; i += piece) pl_sha256_add(&h, text + i, n - i < piece ? n - i : piece);
    pl_sha256_end(out, &h);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    static const struct {
        const char *text, *want;
    } vectors[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmno"
         "pqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    char hex[PL_SHA256_HEX], other[PL_SHA256_HEX];
    int64_t wrong = 0;
    for (int i = 0; i < 4; i++) {
        hash(hex, vectors[i].text, strlen(vectors[i].text), 64);
        wrong += strcmp(hex, vectors[i].want) != 0;
    }
    test_exact("published vectors", wrong);

    static char many[1000000];
    memset(many, 'a', sizeof many);
    hash(hex, many, sizeof many, sizeof many);
    test_exact("a million times a",
               strcmp(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0") != 0);

    /* every length around one and two blocks, in pieces of every size */
    wrong = 0;
    for (size_t n = 0; n <= 130; n++) {
        for (size_t i = 0; i < n; i++) many[i] = (char)(7 * i + n);
        hash(hex, many, n, n ? n : 1);
        for (size_t piece = 1; piece < 70; piece++) {
            hash(other, many, n, piece);
            wrong += strcmp(hex, other) != 0;
        }
    }
    test_exact("the same in pieces", wrong);
    return test_end();
}
