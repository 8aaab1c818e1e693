/* Prints the machine's peaks as JSON: calibrate ARRAY_BYTES ROUNDS COMPUTE_MS BANDWIDTH_MS.
 *
 * All threads run a kernel at once, each pinned to a core, and note the time after each step. The figure is
 * the most work done in any window of WINDOW_S: a thread that the scheduler held up costs one window, not the
 * measurement.
 */
#define _GNU_SOURCE
#include "harness.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <time.h>
#include <unistd.h>

#define WINDOW_S 2e-3
#define FAIR_SHARE (1.0 / 3) /* of the mean: a thread below it was kept off its core by something else */
#define MORE_ROUNDS 3        /* times the rounds asked for, for a kernel that was not seen undisturbed */
#define MAX_KERNELS 32
#define MAX_ROUNDS 64
#define MAX_STEPS 8192

typedef struct {
    double rate[MAX_ROUNDS];
    int rounds, undisturbed;
} figures_t;

typedef struct {
    pthread_t thread;
    int core;
    share_t share;
    int count; /* steps done in this round */
    double work_per_step;
    double end[MAX_STEPS + 1]; /* end[0] is the start; seconds */
} worker_t;

static worker_t *workers;
static int worker_count;
static unsigned char *memory;
static size_t memory_bytes;

static const kernel_t *current; /* NULL ends the threads */
static double round_s;
static atomic_int arrived, generation;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A barrier of all workers and the main thread. It yields, so that more threads than cores still pass. */
static void meet(void)
{
    const int mine = atomic_load(&generation);
    if (atomic_fetch_add(&arrived, 1) == worker_count) {
        atomic_store(&arrived, 0);
        atomic_fetch_add(&generation, 1);
        return;
    }
    while (atomic_load(&generation) == mine)
        sched_yield();
}

static void touch_share(worker_t *worker)
{
    const size_t share = memory_bytes / (size_t)worker_count / (2u << 20) * (2u << 20);
    worker->share.memory = memory + share * (size_t)(worker - workers);
    worker->share.bytes = share;
    for (size_t at = 0; at < share; at += 4096)
        worker->share.memory[at] = 1;
}

static void run_round(worker_t *worker)
{
    double t = now_s();
    const double stop = t + round_s;
    worker->count = 0;
    worker->end[0] = t;
    while (t < stop && worker->count < MAX_STEPS) {
        worker->work_per_step = current->step(&worker->share);
        t = now_s();
        worker->end[++worker->count] = t;
    }
}

static void *work(void *argument)
{
    worker_t *worker = argument;
#if defined(__linux__)
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(worker->core, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
#endif
    touch_share(worker);
    meet();
    for (;;) {
        meet(); /* main has set `current` */
        if (!current)
            return NULL;
        run_round(worker);
        meet(); /* main reads the logs */
    }
}

/* Work that a thread had done by time t, linear inside a step. */
static double work_by(const worker_t *worker, double t)
{
    int low = 0, high = worker->count;
    if (t <= worker->end[0])
        return 0;
    if (t >= worker->end[high])
        return high * worker->work_per_step;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (worker->end[middle] <= t)
            low = middle;
        else
            high = middle;
    }
    return worker->work_per_step * (low + (t - worker->end[low]) / (worker->end[high] - worker->end[low]));
}

/* The best rate of `count` threads together over any window that begins where a step of the first ends, and
 * the least that one of them did in that window. */
static double best_window(const worker_t *first, int count, double *least)
{
    double best = 0;
    const double last = first->end[first->count];
    *least = 0;
    for (int i = 0; i <= first->count; i++) {
        const double start = first->end[i];
        double sum = 0, smallest = 1e300;
        if (start + WINDOW_S > last && i > 0)
            break;
        for (int w = 0; w < count; w++) {
            const double rate = (work_by(first + w, start + WINDOW_S) - work_by(first + w, start)) / WINDOW_S;
            sum += rate;
            if (rate < smallest)
                smallest = rate;
        }
        if (sum > best)
            best = sum, *least = smallest;
    }
    return best;
}

/* Cores share the memory and nothing else: bandwidth in one window of all, compute in each core's own. */
static double best_rate(int shared, int *undisturbed)
{
    double total = 0, least = 1e300, smallest;
    if (shared)
        total = best_window(workers, worker_count, &least);
    for (int w = 0; w < worker_count && !shared; w++) {
        total += best_window(workers + w, 1, &smallest);
        if (smallest < least)
            least = smallest;
    }
    *undisturbed |= least >= FAIR_SHARE * total / worker_count;
    return total;
}

/* One round of each kernel that needs one. */
static void measure(const kernel_t *kernels, int count, int needed, double seconds, figures_t *figures)
{
    round_s = seconds;
    for (int k = 0; k < count; k++) {
        figures_t *const figure = figures + k;
        const int shared = !strcmp(kernels[k].dtype, "bytes");
        if ((kernels[k].available && !kernels[k].available()) || (!needed && figure->undisturbed))
            continue;
        current = kernels + k;
        meet();
        nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * seconds)}, NULL); /* no spinning */
        meet();
        figure->rate[figure->rounds++] = best_rate(shared, &figure->undisturbed);
    }
}

static void print_figures(const kernel_t *kernels, int count, const figures_t *figures)
{
    for (int k = 0; k < count; k++) {
        printf("%s{\"name\": \"%s\", \"dtype\": \"%s\", ", k ? ", " : "", kernels[k].name, kernels[k].dtype);
        printf("\"undisturbed\": %s, \"rates\": [", figures[k].undisturbed ? "true" : "false");
        for (int round = 0; round < figures[k].rounds; round++)
            printf("%s%.6g", round ? ", " : "", figures[k].rate[round]);
        printf("]}");
    }
}

static int start_workers(void)
{
    int core = 0;
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set))
        return -1;
    worker_count = CPU_COUNT(&set);
#else
    worker_count = (int)sysconf(_SC_NPROCESSORS_ONLN);
#endif
    workers = calloc((size_t)worker_count, sizeof *workers);
    if (!workers)
        return -1;
    for (int w = 0; w < worker_count; w++, core++) {
#if defined(__linux__)
        while (!CPU_ISSET(core, &set))
            core++;
#endif
        workers[w].core = core;
        if (pthread_create(&workers[w].thread, NULL, work, workers + w))
            return -1;
    }
    return 0;
}

static int map_memory(void)
{
    const size_t huge = 2u << 20;
    unsigned char *raw = mmap(NULL, memory_bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (raw == MAP_FAILED)
        return -1;
    memory = raw + (huge - (size_t)raw % huge) % huge;
#if defined(MADV_HUGEPAGE)
    madvise(memory, memory_bytes, MADV_HUGEPAGE);
#endif
    return 0;
}

int main(int argc, char **argv)
{
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* who asked is gone: nobody reads the figures */
#endif
    static figures_t compute[MAX_KERNELS], bandwidth[MAX_KERNELS];
    if (argc != 5)
        return fprintf(stderr, "usage: %s ARRAY_BYTES ROUNDS COMPUTE_MS BANDWIDTH_MS\n", argv[0]), 2;
    memory_bytes = strtoull(argv[1], NULL, 10);
    const int rounds = atoi(argv[2]);
    if (rounds < 1 || rounds * MORE_ROUNDS > MAX_ROUNDS)
        return fprintf(stderr, "ROUNDS is from 1 to %d\n", MAX_ROUNDS / MORE_ROUNDS), 2;
    const double begin = now_s();
    if (map_memory() || start_workers())
        return fprintf(stderr, "not enough memory or threads\n"), 1;
    meet(); /* all pages touched */
    const double touched = now_s();
    for (int round = 0; round < MORE_ROUNDS * rounds; round++) { /* compute spread over the time: hosts vary */
        measure(compute_kernels, compute_kernel_count, round < rounds, 1e-3 * atof(argv[3]), compute);
        measure(bandwidth_kernels, bandwidth_kernel_count, round < rounds, 1e-3 * atof(argv[4]), bandwidth);
    }
    const double end = now_s();
    current = NULL;
    meet();
    printf("{\"cores\": %d, \"vector_bytes\": %d, \"touch_s\": %.4f, \"measure_s\": %.4f, "
           "\"compiler\": \"%s\", \"compute\": [",
           worker_count, VECTOR_BYTES, touched - begin, end - touched, __VERSION__);
    print_figures(compute_kernels, compute_kernel_count, compute);
    printf("], \"bandwidth\": [");
    print_figures(bandwidth_kernels, bandwidth_kernel_count, bandwidth);
    printf("]}\n");
    return 0;
}
