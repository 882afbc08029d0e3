// Runs kernels in CUDA C++ on the CPU: what such a file needs in place of CUDA, as one header.
//
// The threads of a block are fibres of one system thread (emulator_fibres.h) or, with EMULATOR_THREADS, system threads
// of their own (emulator_threads.h), which is slow and lets ThreadSanitizer see updates that lack an atomic. Several
// blocks are under way at once, and a thread that may go on is picked by chance, from a seed.
//
// Shared memory begins as NaN patterns. Every buffer and every shared variable ends at a page that cannot be touched.
// A barrier that not all threads of a block, or a shuffle that not all lanes of its mask reach, is an error.
//
// Not there: dynamic shared memory, grids that synchronise, textures, inline PTX.
#pragma once

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace emulator {

constexpr int WARP = 32;
constexpr int RESIDENT_BLOCKS = 3;
constexpr unsigned char UNSET = 0xFF;

struct Dim3 {
    unsigned x = 1, y = 1, z = 1;
    unsigned count() const { return x * y * z; }
};

// ---- Memory that ends at a guard page -------------------------------------------------------------------------------

class Guarded {
  public:
    Guarded(size_t size, std::string name) : size(size), name(std::move(name)) {
        const size_t page = sysconf(_SC_PAGESIZE);
        const size_t inside = std::max<size_t>(1, (size + page - 1) / page) * page;
        mapped_ = inside + 2 * page;
        base_ = static_cast<char*>(mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        if (base_ == MAP_FAILED || mprotect(base_ + page, inside, PROT_READ | PROT_WRITE) != 0) {
            std::fprintf(stderr, "emulator: no memory for %zu bytes\n", size);
            std::abort();
        }
        first_ = base_ + page;
        data = first_ + inside - size;
        std::memset(first_, UNSET, inside);
    }
    ~Guarded() { munmap(base_, mapped_); }
    Guarded(const Guarded&) = delete;
    Guarded& operator=(const Guarded&) = delete;

    bool holds(const void* address) const { return address >= base_ && address < base_ + mapped_; }
    long offset(const void* address) const { return static_cast<const char*>(address) - data; }
    // Whether something was written before the beginning, up to the guard page in front.
    bool underrun() const {
        return std::any_of(first_, data, [](char byte) { return static_cast<unsigned char>(byte) != UNSET; });
    }

    char* data;
    const size_t size;
    const std::string name;

  private:
    char *base_, *first_;
    size_t mapped_;
};

// ---- Blocks, warps and threads --------------------------------------------------------------------------------------

struct Thread;

struct Block {
    Dim3 index;
    std::vector<Thread*> threads;
    std::vector<std::pair<int, std::unique_ptr<Guarded>>> shared;
    std::mutex lock;  // of `shared`; taken with threads only

    void* variable(int id, size_t size, const char* name) {
        for (auto& [known, memory] : shared)
            if (known == id) return memory->data;
        shared.emplace_back(id, std::make_unique<Guarded>(size, std::string("shared variable ") + name));
        return shared.back().second->data;
    }
};

// What a lane brings to a shuffle or a vote, and what it gets.
struct Exchange {
    unsigned mask = 0;
    uint64_t value = 0, result = 0;
    int source = -1;  // a lane; -1: all lanes of the mask vote with `value`
};

struct Thread {
    Block* block = nullptr;
    Dim3 index;
    unsigned rank = 0;
    int site = 0;
    Exchange exchange;
    unsigned lane() const { return rank % WARP; }
};

// The lanes of one warp that exist, as bits.
inline unsigned lanes_of_warp(const Block& block, unsigned rank) {
    const size_t first = rank / WARP * WARP;
    const size_t n = std::min<size_t>(WARP, block.threads.size() - first);
    return n == WARP ? 0xFFFFFFFFu : (1u << n) - 1;
}

// Give each lane of a mask its result; `at` returns the thread of a lane.
template <class At> void finish_exchange(unsigned mask, At at) {
    unsigned votes = 0;
    for (int lane = 0; lane < WARP; lane++)
        if (mask >> lane & 1 && at(lane)->exchange.source < 0 && at(lane)->exchange.value) votes |= 1u << lane;
    for (int lane = 0; lane < WARP; lane++) {
        if (!(mask >> lane & 1)) continue;
        Exchange& mine = at(lane)->exchange;
        if (mine.source < 0)
            mine.result = votes;
        else  // a lane outside the mask has nothing to give
            mine.result = mask >> mine.source & 1 ? at(mine.source)->exchange.value : ~uint64_t{0};
    }
}

struct Launch {
    Dim3 grid, block;
    uint64_t seed = 0;
};

inline uint64_t next_random(uint64_t& state) {
    state += 0x9e3779b97f4a7c15ull;
    uint64_t x = state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

inline Dim3 place_in(const Dim3& whole, unsigned rank) {
    return {rank % whole.x, rank / whole.x % whole.y, rank / whole.x / whole.y};
}

inline std::string text(const char* format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    return line;
}

inline std::string place_of(const Thread& thread) {
    const Dim3 &t = thread.index, &b = thread.block->index;
    return text("thread (%u, %u, %u) of block (%u, %u, %u)", t.x, t.y, t.z, b.x, b.y, b.z);
}

// ---- What the two ways to run threads provide -----------------------------------------------------------------------

Thread& me();
void barrier(int line);
void exchange(int line);                // of the calling lane's `Exchange`, with the others of its mask
void pause();                           // anything may happen here
void nap(unsigned nanoseconds);         // let others run
bool is_local(const void* address);     // whether it is a variable of the calling thread's own
[[noreturn]] void end_thread();         // end the calling thread of the kernel
[[noreturn]] void fail(const std::string& what);
template <class Call> std::string run(const Launch& launch, Call call);  // "" or what went wrong
extern std::vector<std::unique_ptr<Guarded>> buffers;
extern Dim3 grid_dim, block_dim;

}  // namespace emulator

#ifdef EMULATOR_THREADS
#include "emulator_threads.h"
#else
#include "emulator_fibres.h"
#endif
#include "emulator_cuda.h"
#include "emulator_launch.h"
