/* Sweeps over memory. Bytes are those that must move: what a cache adds (write-allocate) isn't counted. */
#include "harness.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* One step works through this much of each array, so that clock reads cost nothing. */
#define BLOCK ((size_t)512 * 1024)

typedef float vector_t __attribute__((vector_size(VECTOR_BYTES)));

/* Stores that don't read the line first, where the machine has them. */
static inline void stream(vector_t *to, vector_t value)
{
#if defined(__AVX512F__)
    _mm512_stream_ps((float *)to, (__m512)value);
#elif defined(__AVX__)
    _mm256_stream_ps((float *)to, (__m256)value);
#elif defined(__x86_64__)
    _mm_stream_ps((float *)to, (__m128)value);
#elif defined(__clang__)
    __builtin_nontemporal_store(value, to);
#else
    *to = value;
#endif
}

/* The next `count` blocks, which lie one after the other. All kernels go round the share with one cursor, so
 * that what they touch is always what was touched longest ago, and in no cache. */
static unsigned char *next_blocks(share_t *share, size_t count)
{
    const size_t at = share->offset + count * BLOCK <= share->bytes ? share->offset : 0;
    share->offset = at + count * BLOCK;
    return share->memory + at;
}

static volatile float sink;
static volatile float factor = 0.5f;

/* Reads `streams` places of the share at once: more open pages, more prefetchers at work. */
static inline double read_streams(share_t *share, size_t streams)
{
    const size_t vectors = BLOCK / VECTOR_BYTES;
    const unsigned char *blocks = next_blocks(share, streams);
    vector_t sum[8] = {{0}};
    for (size_t i = 0; i < vectors; i += 8 / streams)
        for (size_t s = 0; s < streams; s++) {
            const vector_t *from = (const vector_t *)(blocks + s * BLOCK) + i;
#pragma GCC unroll 8
            for (size_t j = 0; j < 8 / streams; j++)
                sum[s * (8 / streams) + j] += from[j];
        }
    for (int j = 1; j < 8; j++)
        sum[0] += sum[j];
    sink = sum[0][0];
    return (double)(BLOCK * streams);
}

static double read_1(share_t *share)
{
    return read_streams(share, 1);
}

static double read_4(share_t *share)
{
    return read_streams(share, 4);
}

static double copy(share_t *share)
{
    const size_t vectors = BLOCK / VECTOR_BYTES;
    const vector_t *from = (const vector_t *)next_blocks(share, 2);
    vector_t *to = (vector_t *)from + vectors;
    for (size_t i = 0; i < vectors; i++)
        stream(to + i, from[i]);
    return 2.0 * BLOCK;
}

static double triad(share_t *share)
{
    const size_t vectors = BLOCK / VECTOR_BYTES;
    const vector_t *left = (const vector_t *)next_blocks(share, 3), *right = left + vectors;
    vector_t *to = (vector_t *)right + vectors;
    const vector_t scale = (vector_t){0} + factor;
    for (size_t i = 0; i < vectors; i++)
        stream(to + i, left[i] + scale * right[i]);
    return 3.0 * BLOCK;
}

static double write_only(share_t *share)
{
    const size_t vectors = BLOCK / VECTOR_BYTES;
    vector_t *to = (vector_t *)next_blocks(share, 1);
    const vector_t value = (vector_t){0} + factor;
    for (size_t i = 0; i < vectors; i++)
        stream(to + i, value);
    return (double)BLOCK;
}

const kernel_t bandwidth_kernels[] = {
    {"read_1_stream", "bytes", read_1, 0},  {"read_4_streams", "bytes", read_4, 0},
    {"copy", "bytes", copy, 0},             {"triad", "bytes", triad, 0},
    {"write", "bytes", write_only, 0},
};
const int bandwidth_kernel_count = sizeof bandwidth_kernels / sizeof bandwidth_kernels[0];
