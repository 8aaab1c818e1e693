/* What the kernels, the harness and main share. A step does a fixed amount of work and says how much. */
#ifndef ROOFMARK_HARNESS_H
#define ROOFMARK_HARNESS_H

#include <stddef.h>

typedef struct {
    unsigned char *memory; /* this thread's own share of the array, page-touched by this thread */
    size_t bytes;
    size_t offset; /* where the next step of a bandwidth kernel goes on */
} share_t;

typedef double (*step_t)(share_t *share); /* FLOP (or integer operations) done, or bytes moved */

typedef struct {
    const char *name;  /* e.g. "avx512_dpbf16" */
    const char *dtype; /* e.g. "bf16"; "bytes" for bandwidth */
    step_t step;
    int (*available)(void); /* NULL: always */
} kernel_t;

extern const kernel_t compute_kernels[];
extern const int compute_kernel_count;
extern const kernel_t bandwidth_kernels[];
extern const int bandwidth_kernel_count;

/* Vector width of the widest unit that the compiler may use. */
#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

#endif
