// Products of matrices in tiles that stay in registers.
#pragma once
#include "vectors.h"

// Rows that are multiplied, `row` floats apart, whose values are `step` apart.
struct Left {
    const float *values;
    long row, step;
};

// COLUMNS values for each step, `step` floats apart.
struct Right {
    const float *values;
    long step;
};

// Where to fetch from while a tile is computed, and how many bytes at each step.
struct Ahead {
    const char *next;
    long step;
};

// Weights [N, K] to panels [N / COLUMNS, K, COLUMNS] at `place`; returns what is behind them.
static inline float *pack(const float *&weight, long n, long k, float *place) {
    const float *from = weight;
    weight = place;
    for (long first = 0; first < n; first += COLUMNS)
        for (long i = 0; i < k; i++)
            for (long column = first; column < first + COLUMNS; column++) *place++ = from[column * k + i];
    return place;
}

// R rows; `keep(row, part, value)` gets the results.
template <int R, class Keep>
inline void tile(Left a, Right b, long k, Ahead ahead, Keep keep) {
    Vector c[R][PARTS] = {};
    for (long i = 0; i < k; i++, a.values += a.step, b.values += b.step, ahead.next += ahead.step) {
        __builtin_prefetch(ahead.next, 0, 2);
        __builtin_prefetch(ahead.next + 64, 0, 2);
        Vector row[PARTS];
        for (int p = 0; p < PARTS; p++) row[p] = load(b.values + p * WIDTH);
        for (int r = 0; r < R; r++)
            for (int p = 0; p < PARTS; p++) c[r][p] += a.values[r * a.row] * row[p];
    }
    for (int r = 0; r < R; r++)
        for (int p = 0; p < PARTS; p++) keep(r, p, c[r][p]);
}

// The same where the number of rows is not known before; at most R.
template <int R, class Keep>
inline void tile_of(long rows, Left a, Right b, long k, Ahead ahead, Keep keep) {
    if constexpr (R > 0) {
        if (rows == R)
            tile<R>(a, b, k, ahead, keep);
        else
            tile_of<R - 1>(rows, a, b, k, ahead, keep);
    }
}

// Any number of rows, in tiles of nearly the same height. `behind`, if not null, is what will be multiplied next: it is
// fetched meanwhile, since weights are far away.
template <class Keep>
inline void product(long rows, Left a, Right b, long k, const float *behind, Keep keep) {
    const long tiles = (rows + ROWS - 1) / ROWS, step = behind ? COLUMNS * long(sizeof(float)) / tiles : 0;
    const char *next = (const char *)(behind ? behind : b.values);
    for (long i = 0, first = 0; i < tiles; i++) {
        const long last = rows * (i + 1) / tiles;
        const Left part = {a.values + first * a.row, a.row, a.step};
        tile_of<ROWS>(last - first, part, b, k, {next + i * k * step, step},
                      [&](int r, int p, Vector value) { keep(first + r, p, value); });
        first = last;
    }
}
