// Threads as system threads, all blocks at once: for ThreadSanitizer, on small shapes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <thread>

#include <pthread.h>

// How long threads of a block wait for each other; 0: for ever, for kernels that wait for other processes.
#ifndef EMULATOR_PATIENCE_SECONDS
#define EMULATOR_PATIENCE_SECONDS 60
#endif

namespace emulator {

std::vector<std::unique_ptr<Guarded>> buffers;
Dim3 grid_dim, block_dim;

constexpr unsigned MOST_THREADS = 2048;

// Where some threads of a block wait for each other.
struct Gate {
    std::mutex lock;
    std::condition_variable opened;
    unsigned waiting = 0, passes = 0;
    int site = 0;
};

// Gates in turn: a thread that is late to wake must not wait for the lock of one that is already at the next barrier,
// since that would order what the kernel leaves unordered, and hide a race.
struct Gates {
    Gate& next(unsigned passed) { return turns[passed % 3]; }
    Gate turns[3];
};

struct ThreadBlock : Block {
    Gates all;
    std::vector<std::unique_ptr<Gates>> warps;
};

inline thread_local Thread* self = nullptr;
inline thread_local unsigned barriers_passed = 0, exchanges_passed = 0;

inline Thread& me() { return *self; }

[[noreturn]] inline void fail(const std::string& what) {
    std::fprintf(stderr, "emulator: %s\n", what.c_str());
    std::_Exit(3);
}

inline void pause() { std::this_thread::yield(); }

// A thousand times as long as asked for: system threads take that long to run at all.
inline void nap(unsigned nanoseconds) { std::this_thread::sleep_for(std::chrono::microseconds(nanoseconds)); }

inline bool is_local(const void* address) {
    static thread_local char *first = nullptr, *end = nullptr;
    if (!end) {
        pthread_attr_t attributes;
        void* stack = nullptr;
        size_t size = 0;
        if (pthread_getattr_np(pthread_self(), &attributes) != 0) fail("no stack is known");
        pthread_attr_getstack(&attributes, &stack, &size);
        pthread_attr_destroy(&attributes);
        first = static_cast<char*>(stack), end = first + size;
    }
    return address >= first && address < end;
}

struct Left {};
[[noreturn]] inline void end_thread() { throw Left{}; }

// Wait until n threads have come; the last one calls `finish` first.
template <class Finish> void meet(Gate& gate, unsigned n, int line, Finish finish) {
    std::unique_lock<std::mutex> hold(gate.lock);
    if (gate.waiting && gate.site != line)
        fail(text("divergent barrier: %s waits in line %d, others in line %d", place_of(me()).c_str(), line, gate.site));
    gate.site = line;
    if (++gate.waiting == n) {
        finish();
        gate.waiting = 0;
        gate.passes++;
        gate.opened.notify_all();
        return;
    }
    const unsigned pass = gate.passes;
    if (EMULATOR_PATIENCE_SECONDS == 0) return gate.opened.wait(hold, [&] { return gate.passes != pass; });
    // A thread that ended, or waits elsewhere, never comes. (The sanitizer knows waits by the clock of the system only.)
    const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(EMULATOR_PATIENCE_SECONDS);
    if (!gate.opened.wait_until(hold, deadline, [&] { return gate.passes != pass; }))
        fail(text("%s waits in line %d for threads that do not come", place_of(me()).c_str(), line));
}

inline void barrier(int line) {
    auto& block = *static_cast<ThreadBlock*>(me().block);
    meet(block.all.next(barriers_passed++), block.threads.size(), line, [] {});
}

// Masks are whole warps here.
inline void exchange(int line) {
    auto& block = *static_cast<ThreadBlock*>(me().block);
    const unsigned first = me().rank / WARP * WARP, mask = lanes_of_warp(block, me().rank);
    if (me().exchange.mask != mask) fail(text("line %d: a mask that is not the whole warp; use fibres", line));
    meet(block.warps[me().rank / WARP]->next(exchanges_passed++), __builtin_popcount(mask), line,
         [&] { finish_exchange(mask, [&](int lane) { return block.threads[first + lane]; }); });
}

template <class Call> std::string run(const Launch& launch, Call call) {
    if (launch.grid.count() * launch.block.count() > MOST_THREADS) return "too many threads; use fibres";
    grid_dim = launch.grid, block_dim = launch.block;
    std::vector<std::unique_ptr<ThreadBlock>> blocks;
    std::deque<Thread> threads;
    for (unsigned at = 0; at < launch.grid.count(); at++) {
        auto block = std::make_unique<ThreadBlock>();
        block->index = place_in(launch.grid, at);
        for (unsigned rank = 0; rank < launch.block.count(); rank++) {
            threads.emplace_back();
            threads.back().block = block.get();
            threads.back().rank = rank;
            threads.back().index = place_in(launch.block, rank);
            block->threads.push_back(&threads.back());
            if (rank % WARP == 0) block->warps.push_back(std::make_unique<Gates>());
        }
        blocks.push_back(std::move(block));
    }
    std::vector<std::thread> running;
    for (Thread& thread : threads)
        running.emplace_back([&thread, &call] {
            self = &thread;
            try {
                call();
            } catch (const Left&) {
            }
        });
    for (std::thread& thread : running) thread.join();
    return "";
}

}  // namespace emulator
