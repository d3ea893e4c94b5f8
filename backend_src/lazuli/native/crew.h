// Threads that go through the stages of one pass together.
//
// The tasks of a stage are taken one by one, so a thread that is late, or has lost its core to somebody else, holds up
// nobody but the task that it is at. A stage begins when all tasks of the one before are done.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <new>
#include <thread>
#include <vector>
#include <sched.h>

struct Stage {
    long tasks;
    std::function<void(long)> run;
};

class Crew {
  public:
    explicit Crew(int threads) {
        for (int i = 1; i < threads; i++) others.emplace_back([this] { serve(); });
    }

    ~Crew() {
        {
            std::lock_guard<std::mutex> hold(mutex);
            closed = true;
        }
        woken.notify_all();
        for (auto &thread : others) thread.join();
    }

    size_t size() const { return others.size() + 1; }

    // Returns when everything is done; throws if a task did. Not for two callers at once.
    void run(const std::vector<Stage> &work) {
        for (int turns = 0; !begin(work);) relax(turns);
        woken.notify_all();
        go_through();
        if (failed) throw std::bad_alloc();
    }

  private:
    struct alignas(64) Counter {
        std::atomic<long> taken{0};
        long tasks = 0;
        alignas(64) std::atomic<long> done{0};
        Counter() = default;
        Counter(const Counter &) {}
    };

    static const int SPINS = 2000;         // some 0.03 ms; then others get the core, if they want it
    static const int LINGER = 10 * SPINS;  // how long to stay awake after a pass: another may follow soon
    std::vector<std::thread> others;
    std::mutex mutex;
    std::condition_variable woken;
    std::atomic<int> inside{0};
    std::atomic<long> pass{0};
    std::atomic<bool> failed{false};
    bool closed = false;
    const Stage *stages = nullptr;  // only for who has taken a task: without one, the pass may be over
    size_t count = 0;
    std::vector<Counter> counters;

    static void relax(int &turns) {
        if (++turns % SPINS == 0) sched_yield();
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }

    // False while somebody is still on the way out of the last pass.
    bool begin(const std::vector<Stage> &work) {
        std::lock_guard<std::mutex> hold(mutex);
        if (inside.load(std::memory_order_acquire)) return false;
        if (counters.size() < work.size()) counters = std::vector<Counter>(work.size());
        for (size_t i = 0; i < work.size(); i++) {
            counters[i].taken = counters[i].done = 0;
            counters[i].tasks = work[i].tasks;
        }
        failed = false;
        stages = work.data();
        count = work.size();
        pass++;
        return true;
    }

    void go_through() {
        int turns = 0;
        for (size_t i = 0; i < count; i++) {
            Counter &counter = counters[i];
            for (long task; (task = counter.taken.fetch_add(1, std::memory_order_relaxed)) < counter.tasks;) {
                try {
                    stages[i].run(task);
                } catch (const std::bad_alloc &) {  // the only thing that can happen
                    failed = true;
                }
                counter.done.fetch_add(1, std::memory_order_release);
            }
            while (counter.done.load(std::memory_order_acquire) < counter.tasks) relax(turns);
        }
    }

    void serve() {
        long seen = 0;
        for (;;) {
            for (int turns = 0; turns < LINGER && pass.load(std::memory_order_relaxed) == seen;) relax(turns);
            {
                std::unique_lock<std::mutex> hold(mutex);
                woken.wait(hold, [&] { return closed || pass != seen; });
                if (closed) return;
                seen = pass;
                inside++;
            }
            go_through();
            inside.fetch_sub(1, std::memory_order_release);
        }
    }
};
