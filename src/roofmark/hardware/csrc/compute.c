/* Register-only loops, one per arithmetic unit: nothing that moves data can run faster than these. */
#include "harness.h"

#if defined(__AMX_TILE__) && defined(__linux__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define STEPS 4096
#define LANES(scalar) (VECTOR_BYTES / (double)sizeof(scalar))

static volatile unsigned char sink;

static __attribute__((noinline)) void consume(const void *data)
{
    sink ^= *(const unsigned char *)data;
}

/* One chain per accumulator: enough of them to hide the latency, few enough to stay in registers. */
#define EACH_12(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define EACH_24(X) EACH_12(X) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)
#if VECTOR_BYTES == 32
#define CHAINS 12 /* of 16 registers */
#define EACH EACH_12
#else
#define CHAINS 24 /* of 32 registers */
#define EACH EACH_24
#endif

#define DECLARE(j) acc##j = zero + j, /* all different, or the compiler would keep one of them */
#define ADD(j) sum += acc##j;

/* A function that runs `chain(j)` STEPS times for each accumulator, over the opaque operands a and b. */
#define KERNEL(name, vector, a_value, b_value, chain, work_per_chain)                                         \
    static double name(share_t *share)                                                                        \
    {                                                                                                         \
        const vector zero = {0}, a = zero + (a_value), b = zero + (b_value);                                  \
        vector EACH(DECLARE) sum = zero;                                                                      \
        (void)share;                                                                                          \
        for (int i = 0; i < STEPS; i++) {                                                                     \
            EACH(chain)                                                                                       \
        }                                                                                                     \
        EACH(ADD)                                                                                             \
        consume(&sum);                                                                                        \
        return (double)STEPS * CHAINS * (work_per_chain);                                                     \
    }

/* ---- any machine: the compiler's vectors, contracted to fused multiply-adds where there are any -------- */

typedef float f32v __attribute__((vector_size(VECTOR_BYTES)));
typedef double f64v __attribute__((vector_size(VECTOR_BYTES)));
typedef int i32v __attribute__((vector_size(VECTOR_BYTES)));

/* Volatile, so that nothing is folded; the floating chains converge to 1 and never meet a denormal. */
static volatile float scale32 = 0.9995f, shift32 = 0.0005f;
static volatile double scale64 = 0.9995, shift64 = 0.0005;
static volatile int mask32 = 0x55aa1234, step32 = 77;

#define MULTIPLY_ADD(j) acc##j = acc##j * a + b;
#define XOR_ADD(j) acc##j = (acc##j ^ a) + b;
KERNEL(vector_fp32, f32v, scale32, shift32, MULTIPLY_ADD, 2 * LANES(float))
KERNEL(vector_fp64, f64v, scale64, shift64, MULTIPLY_ADD, 2 * LANES(double))
KERNEL(vector_int32, i32v, mask32, step32, XOR_ADD, 2 * LANES(int))

/* ---- x86: narrow types, by the instruction's name: compilers make spills of the intrinsics -------------- */

#define X86(instruction, j) __asm__(instruction " %2, %1, %0" : "+v"(acc##j) : "v"(a), "v"(b));
#define PAIR(bits) (bits * 0x10001 + 0 * mask32) /* two 16-bit values in 32 bits */

#if defined(__AVX512BF16__)
#define DPBF16(j) X86("vdpbf16ps", j)
KERNEL(avx512_dpbf16, i32v, PAIR(0x3c00), PAIR(0x3c00), DPBF16, 64)
#endif
#if defined(__AVX512FP16__)
#define FMA_FP16(j) X86("vfmadd213ph", j)
KERNEL(avx512_fp16_fma, i32v, PAIR(0x3bfc), PAIR(0x1000), FMA_FP16, 64)
#endif
#if defined(__AVX512VNNI__)
#define DOT_INT8(j) X86("vpdpbusd", j)
KERNEL(int8_vnni, i32v, mask32, step32, DOT_INT8, 128)
#elif defined(__AVXVNNI__)
#define DOT_INT8(j) X86("%{vex%} vpdpbusd", j)
KERNEL(int8_vnni, i32v, mask32, step32, DOT_INT8, 64)
#elif defined(__AVX2__)
#define MADDUBS(j) __asm__("vpmaddubsw %1, %0, %0\n\tvpaddw %2, %0, %0" : "+v"(acc##j) : "v"(a), "v"(b));
KERNEL(int8_maddubs, i32v, mask32, step32, MADDUBS, 2.0 * VECTOR_BYTES)
#endif

/* ---- x86: AMX tiles, 16 rows of 64 bytes; six accumulators hide the latency ----------------------------- */

#if defined(__AMX_TILE__) && defined(__linux__)
static int amx_permitted(void)
{
    enum { arch_req_xcomp_perm = 0x1023, xfeature_tile_data = 18 };
    return syscall(SYS_arch_prctl, arch_req_xcomp_perm, xfeature_tile_data) == 0;
}

static void amx_configure(void)
{
    struct {
        unsigned char palette, start_row, reserved[14];
        unsigned short row_bytes[16];
        unsigned char rows[16];
    } config = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        config.row_bytes[tile] = 64;
        config.rows[tile] = 16;
    }
    __asm__ volatile("" : : "r"(&config) : "memory"); /* some compilers think that 8 bytes of it are read */
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
}

#define AMX_KERNEL(name, dot, work_per_dot)                                                                   \
    static double name(share_t *share)                                                                        \
    {                                                                                                         \
        (void)share;                                                                                          \
        amx_configure();                                                                                      \
        for (int i = 0; i < STEPS; i++) {                                                                     \
            dot(0, 6, 7);                                                                                     \
            dot(1, 6, 7);                                                                                     \
            dot(2, 6, 7);                                                                                     \
            dot(3, 6, 7);                                                                                     \
            dot(4, 6, 7);                                                                                     \
            dot(5, 6, 7);                                                                                     \
        }                                                                                                     \
        _tile_release();                                                                                      \
        return STEPS * 6.0 * (work_per_dot);                                                                  \
    }

#if defined(__AMX_BF16__)
AMX_KERNEL(amx_bf16, _tile_dpbf16ps, 16 * 16 * 32 * 2)
#endif
#if defined(__AMX_FP16__)
AMX_KERNEL(amx_fp16, _tile_dpfp16ps, 16 * 16 * 32 * 2)
#endif
#if defined(__AMX_INT8__)
AMX_KERNEL(amx_int8, _tile_dpbssd, 16 * 16 * 64 * 2)
#endif
#endif

const kernel_t compute_kernels[] = {
    {"vector_fp64", "fp64", vector_fp64, 0},
    {"vector_fp32", "fp32", vector_fp32, 0},
    {"vector_int32", "int32", vector_int32, 0},
#if defined(__AVX512BF16__)
    {"avx512_dpbf16", "bf16", avx512_dpbf16, 0},
#endif
#if defined(__AVX512FP16__)
    {"avx512_fp16_fma", "fp16", avx512_fp16_fma, 0},
#endif
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
    {"int8_vnni", "int8", int8_vnni, 0},
#elif defined(__AVX2__)
    {"int8_maddubs", "int8", int8_maddubs, 0},
#endif
#if defined(__AMX_BF16__) && defined(__linux__)
    {"amx_bf16", "bf16", amx_bf16, amx_permitted},
#endif
#if defined(__AMX_FP16__) && defined(__linux__)
    {"amx_fp16", "fp16", amx_fp16, amx_permitted},
#endif
#if defined(__AMX_INT8__) && defined(__linux__)
    {"amx_int8", "int8", amx_int8, amx_permitted},
#endif
};
const int compute_kernel_count = sizeof compute_kernels / sizeof compute_kernels[0];
