// Vectors of floats as wide as the machine has them, and the functions of them that a transformer needs.
#pragma once
#include <cstring>
#include <initializer_list>

#if defined(__AVX512F__)
constexpr int WIDTH = 16, ROWS = 14;  // floats of a vector; rows of a tile, as many as registers hold beside the rest
#elif defined(__AVX__)
constexpr int WIDTH = 8, ROWS = 3;
#else
constexpr int WIDTH = 4, ROWS = 2;
#endif
constexpr int COLUMNS = 32;  // of a tile
constexpr int PARTS = COLUMNS / WIDTH;

typedef float Vector __attribute__((vector_size(WIDTH * 4)));
typedef int Integers __attribute__((vector_size(WIDTH * 4)));

static inline Vector load(const float *from) {
    Vector value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline void store(float *to, Vector value) { memcpy(to, &value, sizeof value); }
static inline Vector splat(float value) { return value - Vector{}; }
// Of these, a stays if it is NaN.
static inline Vector largest(Vector a, Vector b) { return a < b ? b : a; }
static inline Vector smallest(Vector a, Vector b) { return a > b ? b : a; }

static inline float sum(Vector value) {
    float total = 0;
    for (int i = 0; i < WIDTH; i++) total += value[i];
    return total;
}

// e^x for x <= 0: 2^n e^r, where |r| <= ln 2 / 2, and a polynomial for the rest.
static inline Vector exponential(Vector x) {
    const float round = 12582912.0f;  // 1.5 * 2^23: what is added to it loses its fraction
    x = largest(x, splat(-87.0f));
    Vector n = x * 1.44269504f + round;
    Integers power = (Integers)n << 23;
    n -= round;
    Vector r = x - n * 0.693359375f + n * 2.12194440e-4f;
    Vector p = splat(1.0f / 720);
    for (float c : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) p = p * r + c;
    return (Vector)((Integers)p + power);
}

// x Phi(x); Phi(x) - 1/2 as x P(x^2) / Q(x^2), fitted for |x| <= 5.3, beyond which it does not change in float32.
static inline Vector gelu(Vector x) {
    Vector y = smallest(largest(x, splat(-5.3f)), splat(5.3f)), square = y * y;
    Vector p = splat(2.405026091e-08f), q = splat(1.237168162e-06f);
    for (float c : {6.379074528e-06f, 1.603354839e-04f, 4.627999473e-03f, 3.293587059e-02f, 3.989422541e-01f})
        p = p * square + c;
    for (float c : {7.135267331e-05f, 1.836577074e-03f, 2.813887553e-02f, 2.492242134e-01f, 1.0f}) q = q * square + c;
    return x * (0.5f + y * p / q);
}
