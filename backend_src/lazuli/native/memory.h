// Memory in large pages: with small ones, finding them takes longer than what streams through them is worth.
#pragma once
#include <cstdlib>
#include <memory>
#include <new>
#include <sys/mman.h>

struct Free {
    void operator()(float *memory) const { free(memory); }
};
typedef std::unique_ptr<float[], Free> Floats;

static inline Floats allocate(long count) {
    const size_t page = 1 << 21, size = (count * sizeof(float) + page - 1) / page * page;
    void *memory = aligned_alloc(page, size);
    if (!memory) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    madvise(memory, size, MADV_HUGEPAGE);
#endif
    return Floats(static_cast<float *>(memory));
}
