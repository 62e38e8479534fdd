/* The best plain loops in place: what the kernels are measured against where a C compiler is. Single precision;
   `start` to `stop` is one thread's part. Compiled at the benchmark's own run, never at installation. */

#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

void in_place(float *x, int64_t start, int64_t stop) {
    for (int64_t i = start; i < stop; i++) x[i] += 1.0f;
}

/* Copy past the cache: lines of the target aren't fetched before they are overwritten. */
void stream_copy(const float *source, float *target, int64_t start, int64_t stop) {
    int64_t i = start;
#ifdef __SSE2__
    for (; i < stop && ((uintptr_t)(target + i) & 15); i++) target[i] = source[i];
    for (; i + 4 <= stop; i += 4) _mm_stream_ps(target + i, _mm_loadu_ps(source + i));
    _mm_sfence();
#endif
    for (; i < stop; i++) target[i] = source[i];
}

/* Blocks that the first-level cache holds, so that any number of pushes is added at one pass over memory. */
void dense_sgd(float *w, float *const *pushes, int64_t workers, float rate, int64_t start, int64_t stop) {
    const float scale = rate / (float)workers;
    float total[2048];
    for (int64_t at = start; at < stop; at += 2048) {
        const int64_t length = stop - at < 2048 ? stop - at : 2048;
        memcpy(total, pushes[0] + at, (size_t)length * sizeof(float));
        for (int64_t k = 1; k < workers; k++) {
            const float *push = pushes[k] + at;
            for (int64_t i = 0; i < length; i++) total[i] += push[i];
        }
        for (int64_t i = 0; i < length; i++) w[at + i] -= scale * total[i];
    }
}

/* Rows `low` to `high` belong to this thread, which reads all numbers of rows and only its own gradients. */
void sparse_sgd(float *table, const int32_t *rows, const float *values, int64_t pushed, int64_t width, float rate,
                int64_t low, int64_t high) {
    for (int64_t i = 0; i < pushed; i++) {
        const int64_t row = rows[i];
        if (i + 8 < pushed) {
            const int64_t next = rows[i + 8];
            if (next >= low && next < high)
                for (int64_t j = 0; j < width; j += 16) __builtin_prefetch(table + next * width + j, 1);
        }
        if (row < low || row >= high) continue;
        float *own = table + row * width;
        const float *value = values + i * width;
        for (int64_t j = 0; j < width; j++) own[j] -= rate * value[j];
    }
}

/* Exact: repeated rows are added up where they are pushed first. `first` (a place a row, -1 before and after) and `after` (a
   place a push: where its row is pushed next) are scratch. */
void sparse_adagrad(float *table, float *squares, const int32_t *rows, const float *values, int64_t pushed,
                    int64_t width, float rate, float epsilon, int32_t *first, int32_t *after, int64_t low,
                    int64_t high) {
    float total[4096];
    for (int64_t i = pushed - 1; i >= 0; i--)
        if (rows[i] >= low && rows[i] < high) {
            after[i] = first[rows[i]];
            first[rows[i]] = (int32_t)i;
        }
    for (int64_t i = 0; i < pushed; i++) {
        if (i + 8 < pushed) {
            const int64_t next = rows[i + 8];
            if (next >= low && next < high)
                for (int64_t j = 0; j < width; j += 16) {
                    __builtin_prefetch(table + next * width + j, 1);
                    __builtin_prefetch(squares + next * width + j, 1);
                }
        }
        const int64_t row = rows[i];
        if (row < low || row >= high || first[row] != i) continue;
        first[row] = -1;
        const float *sum = values + i * width;
        if (after[i] >= 0) {
            memcpy(total, sum, (size_t)width * sizeof(float));
            for (int64_t k = after[i]; k >= 0; k = after[k])
                for (int64_t j = 0; j < width; j++) total[j] += values[k * width + j];
            sum = total;
        }
        float *own = table + row * width, *square = squares + row * width;
        for (int64_t j = 0; j < width; j++) {
            const float g = sum[j];
            square[j] += g * g;
            own[j] -= rate * g / (sqrtf(square[j]) + epsilon);
        }
    }
}

void pull(const float *table, const int32_t *rows, float *out, int64_t width, int64_t start, int64_t stop) {
    for (int64_t i = start; i < stop; i++) {
        if (i + 8 < stop)
            for (int64_t j = 0; j < width; j += 16) __builtin_prefetch(table + (int64_t)rows[i + 8] * width + j, 0);
        memcpy(out + i * width, table + (int64_t)rows[i] * width, (size_t)width * sizeof(float));
    }
}
