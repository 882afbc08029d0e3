// Threads as fibres of one system thread: deterministic for a seed.
#pragma once

#include <csignal>
#include <ucontext.h>

namespace emulator {

std::vector<std::unique_ptr<Guarded>> buffers;
Dim3 grid_dim, block_dim;

constexpr size_t STACK_BYTES = 128 * 1024;

enum class State { ready, at_barrier, exchanging, done };

struct Fibre : Thread {
    State state = State::ready;
    ucontext_t context;
    jmp_buf point;
    bool started = false;
    std::unique_ptr<Guarded> stack;
};

struct Scheduler {
    Launch launch;
    uint64_t random = 0;
    jmp_buf home;
    Fibre* current = nullptr;
    std::vector<Fibre*> ready;
    std::vector<std::unique_ptr<Block>> blocks;
    std::vector<std::unique_ptr<Guarded>> stacks;  // spare ones
    std::string error;
    void (*enter)() = nullptr;
};

inline Scheduler scheduler;

inline Thread& me() { return *scheduler.current; }

// Go back to the scheduler; it returns when this fibre is picked again.
__attribute__((noinline)) inline void leave() {
    if (_setjmp(scheduler.current->point) == 0) _longjmp(scheduler.home, 1);
}

[[noreturn]] inline void fail(const std::string& what) {
    scheduler.error = what;
    _longjmp(scheduler.home, 1);
}

inline void pause() {
    if (next_random(scheduler.random) & 1) return;
    scheduler.ready.push_back(scheduler.current);
    leave();
}

inline void nap(unsigned) { pause(); }

inline bool is_local(const void* address) { return scheduler.current->stack->holds(address); }

[[noreturn]] inline void end_thread() {
    scheduler.current->state = State::done;
    leave();
    std::abort();
}

inline void barrier(int line) {
    scheduler.current->state = State::at_barrier;
    scheduler.current->site = line;
    leave();
}

inline void exchange(int line) {
    scheduler.current->state = State::exchanging;
    scheduler.current->site = line;
    leave();
}

inline Fibre& fibre(Thread* thread) { return *static_cast<Fibre*>(thread); }

// Let the threads of a block pass when all of them wait at one barrier.
inline void check_barrier(Block& block) {
    Thread* waiting = nullptr;
    Thread* gone = nullptr;
    for (Thread* thread : block.threads) {
        const State state = fibre(thread).state;
        if (state == State::done) {
            gone = thread;
        } else if (state != State::at_barrier) {
            return;
        } else if (waiting && waiting->site != thread->site) {
            scheduler.error = text("divergent barrier: %s waits in line %d, ", place_of(*waiting).c_str(), waiting->site) +
                              text("%s in line %d", place_of(*thread).c_str(), thread->site);
            return;
        } else {
            waiting = thread;
        }
    }
    if (!waiting) return;
    if (gone) {
        scheduler.error = text("divergent barrier: %s waits in line %d", place_of(*waiting).c_str(), waiting->site) +
                          text(", %s has ended", place_of(*gone).c_str());
        return;
    }
    for (Thread* thread : block.threads) {
        fibre(thread).state = State::ready;
        scheduler.ready.push_back(&fibre(thread));
    }
}

// Let the lanes of a mask pass when all of them have brought their values.
inline void check_exchange(Fibre& last) {
    Block& block = *last.block;
    const unsigned mask = last.exchange.mask, first = last.rank / WARP * WARP;
    if (mask & ~lanes_of_warp(block, last.rank) || !(mask >> last.lane() & 1)) {
        scheduler.error = text("%s: a shuffle or vote in line %d has mask %08x, which ", place_of(last).c_str(), last.site, mask) +
                          (mask >> last.lane() & 1 ? "names lanes that the warp lacks" : "lacks the lane itself");
        return;
    }
    auto at = [&](int lane) { return &fibre(block.threads[first + lane]); };
    for (int lane = 0; lane < WARP; lane++) {
        if (!(mask >> lane & 1)) continue;
        const Fibre& other = *at(lane);
        if (other.state != State::exchanging) return;
        if (other.site != last.site || other.exchange.mask != mask) {
            scheduler.error = text("divergent warp: %s shuffles or votes in line %d, ", place_of(last).c_str(), last.site) +
                              text("%s in line %d or with another mask", place_of(other).c_str(), other.site);
            return;
        }
    }
    finish_exchange(mask, at);
    for (int lane = 0; lane < WARP; lane++)
        if (mask >> lane & 1) {
            at(lane)->state = State::ready;
            scheduler.ready.push_back(at(lane));
        }
}

inline void begin_block(unsigned rank) {
    auto block = std::make_unique<Block>();
    block->index = place_in(scheduler.launch.grid, rank);
    for (unsigned at = 0; at < scheduler.launch.block.count(); at++) {
        auto* thread = new Fibre;
        thread->block = block.get();
        thread->rank = at;
        thread->index = place_in(scheduler.launch.block, at);
        if (scheduler.stacks.empty()) {
            thread->stack = std::make_unique<Guarded>(STACK_BYTES, "the stack of a thread");
        } else {
            thread->stack = std::move(scheduler.stacks.back());
            scheduler.stacks.pop_back();
        }
        getcontext(&thread->context);
        thread->context.uc_stack.ss_sp = thread->stack->data;
        thread->context.uc_stack.ss_size = STACK_BYTES;
        thread->context.uc_link = nullptr;
        makecontext(&thread->context, scheduler.enter, 0);
        block->threads.push_back(thread);
        scheduler.ready.push_back(thread);
    }
    scheduler.blocks.push_back(std::move(block));
}

inline void end_block(Block* block) {
    for (auto& [_, memory] : block->shared)
        if (memory->underrun()) scheduler.error = "something was written before the beginning of " + memory->name;
    for (Thread* thread : block->threads) {
        scheduler.stacks.push_back(std::move(fibre(thread).stack));
        delete &fibre(thread);
    }
    auto& blocks = scheduler.blocks;
    blocks.erase(std::find_if(blocks.begin(), blocks.end(), [&](auto& one) { return one.get() == block; }));
}

// Run one fibre until it waits, pauses or ends. Nothing with a destructor lives here: `_longjmp` comes back to it.
__attribute__((noinline)) inline void advance(Fibre* next) {
    scheduler.current = next;
    if (_setjmp(scheduler.home) != 0) return;
    if (next->started) _longjmp(next->point, 1);
    next->started = true;
    setcontext(&next->context);
}

// ---- A page that cannot be touched: back to the scheduler, which says whose it was ------------------------------------

inline struct sigaction former_action;
inline thread_local bool emulating = false;

inline std::string touched(const void* address) {
    auto say = [&](const Guarded& memory) {
        return place_of(me()) + text(" touched byte %ld of ", memory.offset(address)) + memory.name +
               text(", which has %zu", memory.size);
    };
    for (auto& memory : buffers)
        if (memory->holds(address)) return say(*memory);
    for (auto& block : scheduler.blocks) {
        for (auto& [_, memory] : block->shared)
            if (memory->holds(address)) return say(*memory);
        for (Thread* thread : block->threads)
            if (fibre(thread).stack->holds(address)) return say(*fibre(thread).stack);
    }
    return place_of(me()) + text(" touched address %p, which is in no buffer", address);
}

inline void on_fault(int signal, siginfo_t* info, void* context) {
    if (emulating && scheduler.current) fail(touched(info->si_addr));
    if (former_action.sa_flags & SA_SIGINFO && former_action.sa_sigaction) {
        former_action.sa_sigaction(signal, info, context);
    } else {
        sigaction(signal, &former_action, nullptr);  // the instruction is tried again
    }
}

// Catches faults while it lives.
struct FaultCatcher {
    FaultCatcher() : memory(64 * 1024) {
        stack_t mine{};
        mine.ss_sp = memory.data();
        mine.ss_size = memory.size();
        sigaltstack(&mine, &former_stack);
        struct sigaction action {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        sigaction(SIGSEGV, &action, &former_action);
        emulating = true;
    }
    ~FaultCatcher() {
        emulating = false;
        sigaction(SIGSEGV, &former_action, nullptr);
        sigaltstack(&former_stack, nullptr);
    }
    std::vector<char> memory;
    stack_t former_stack{};
};

// ---- A launch ---------------------------------------------------------------------------------------------------------

inline std::vector<unsigned> shuffled(unsigned n) {
    std::vector<unsigned> order(n);
    for (unsigned at = 0; at < n; at++) order[at] = at;
    for (unsigned at = n; at > 1; at--) std::swap(order[at - 1], order[next_random(scheduler.random) % at]);
    return order;
}

inline std::string stuck() {
    std::string found = "all threads wait:";
    for (auto& block : scheduler.blocks)
        for (Thread* thread : block->threads)
            if (fibre(thread).state != State::done && found.size() < 300)
                found += " " + place_of(*thread) + text(" in line %d;", thread->site);
    return found;
}

template <class Call> std::string run(const Launch& launch, Call call) {
    static Call* body;  // one launch at a time: the caller holds a lock
    body = &call;
    scheduler.launch = launch;
    scheduler.random = launch.seed;
    scheduler.error.clear();
    scheduler.ready.clear();
    scheduler.enter = [] {
        (*body)();
        scheduler.current->state = State::done;
        leave();
    };
    grid_dim = launch.grid, block_dim = launch.block;
    std::vector<unsigned> order = shuffled(launch.grid.count());
    FaultCatcher catcher;
    while (scheduler.error.empty()) {
        while (scheduler.blocks.size() < RESIDENT_BLOCKS && !order.empty()) {
            begin_block(order.back());
            order.pop_back();
        }
        if (scheduler.ready.empty()) {
            if (!scheduler.blocks.empty()) scheduler.error = stuck();
            break;
        }
        const size_t at = next_random(scheduler.random) % scheduler.ready.size();
        Fibre* next = scheduler.ready[at];
        scheduler.ready[at] = scheduler.ready.back();
        scheduler.ready.pop_back();
        advance(next);
        if (!scheduler.error.empty()) break;
        Block* block = next->block;
        if (next->state == State::exchanging) check_exchange(*next);
        if (next->state == State::at_barrier || next->state == State::done) check_barrier(*block);
        const auto& threads = block->threads;
        if (std::all_of(threads.begin(), threads.end(), [](Thread* one) { return fibre(one).state == State::done; }))
            end_block(block);
    }
    while (!scheduler.blocks.empty()) end_block(scheduler.blocks.back().get());
    return scheduler.error;
}

}  // namespace emulator
