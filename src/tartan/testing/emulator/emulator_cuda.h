// The words of CUDA C++ that kernels use, for the CPU.
#pragma once

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
// Declarations of shared variables become `EMULATED_SHARED(type, name)` when the file is read (see build.py).
#define EMULATED_SHARED(name, ...) auto& name = ::emulator::shared<__VA_ARGS__>(__COUNTER__, #name)

#define threadIdx (::emulator::me().index)
#define blockIdx (::emulator::me().block->index)
#define blockDim (::emulator::block_dim)
#define gridDim (::emulator::grid_dim)
#define warpSize (::emulator::WARP)

#define __syncthreads() ::emulator::barrier(__LINE__)
#define __syncwarp(...) ::emulator::vote(__LINE__, ::emulator::mask_of(__VA_ARGS__), 0)
#define __ballot_sync(mask, predicate) ::emulator::vote(__LINE__, mask, (predicate) != 0)
#define __any_sync(mask, predicate) (::emulator::vote(__LINE__, mask, (predicate) != 0) != 0)
#define __all_sync(mask, predicate) (::emulator::vote(__LINE__, mask, (predicate) == 0) == 0)
#define __shfl_sync(...) ::emulator::shuffle<::emulator::Way::from>(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) ::emulator::shuffle<::emulator::Way::up>(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) ::emulator::shuffle<::emulator::Way::down>(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) ::emulator::shuffle<::emulator::Way::across>(__LINE__, __VA_ARGS__)

namespace emulator {

template <class T> T& shared(int id, const char* name) {
    Block& block = *me().block;
    std::lock_guard<std::mutex> hold(block.lock);
    return *static_cast<T*>(block.variable(id, sizeof(T), name));
}

inline unsigned mask_of(unsigned mask = 0xFFFFFFFFu) { return mask; }

inline unsigned vote(int line, unsigned mask, uint64_t value) {
    Exchange& mine = me().exchange;
    mine.mask = mask, mine.value = value, mine.source = -1;
    exchange(line);
    return static_cast<unsigned>(me().exchange.result);
}

enum class Way { from, up, down, across };

template <Way way> int source_lane(int lane, int by, int width) {
    const int first = lane & ~(width - 1);
    switch (way) {
        case Way::from: return first + (by & (width - 1));
        case Way::up: return lane - by < first ? lane : lane - by;
        case Way::down: return lane + by >= first + width ? lane : lane + by;
        default: return (lane ^ by) >= first + width ? lane : lane ^ by;
    }
}

template <Way way, class T> T shuffle(int line, unsigned mask, T value, int by, int width = WARP) {
    static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_arithmetic<T>::value, "shuffles move numbers");
    Exchange& mine = me().exchange;
    mine.mask = mask, mine.value = 0;
    std::memcpy(&mine.value, &value, sizeof value);
    mine.source = source_lane<way>(static_cast<int>(me().lane()), by, width);
    exchange(line);
    T found;
    std::memcpy(&found, &me().exchange.result, sizeof found);
    return found;
}

// Bits of a number, for atomics on numbers that the processor has none for.
template <class T> using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

#ifdef __SANITIZE_THREAD__
// ThreadSanitizer knows no fences. Here one before an atomic publishes by that atomic what was written before, and one
// behind an atomic takes what others published by it.
extern "C" void __tsan_acquire(void* at);
extern "C" void __tsan_release(void* at);
inline thread_local bool publishes = false;
inline thread_local void* last_atomic = nullptr;

inline void before_atomic(void* at) {
    if (publishes) __tsan_release(at);
    publishes = false, last_atomic = at;
}
inline void fence() {
    publishes = true;
    if (last_atomic) __tsan_acquire(last_atomic);
}
#else
inline void before_atomic(void*) {}
inline void fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
#endif

template <class T, class Change> T change(T* at, Change to) {
    pause();
    before_atomic(at);
    auto* bits = reinterpret_cast<Bits<T>*>(at);
    Bits<T> old = __atomic_load_n(bits, __ATOMIC_RELAXED);
    for (;;) {
        T value;
        std::memcpy(&value, &old, sizeof value);
        const T wanted = to(value);
        Bits<T> next;
        std::memcpy(&next, &wanted, sizeof next);
        if (__atomic_compare_exchange_n(bits, &old, next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return value;
    }
}

}  // namespace emulator

template <class T> T atomicAdd(T* at, std::common_type_t<T> by) {
    return emulator::change(at, [=](T old) { return static_cast<T>(old + by); });
}
template <class T> T atomicMax(T* at, std::common_type_t<T> by) {
    return emulator::change(at, [=](T old) { return old < by ? by : old; });
}
template <class T> T atomicMin(T* at, std::common_type_t<T> by) {
    return emulator::change(at, [=](T old) { return by < old ? by : old; });
}
template <class T> T atomicExch(T* at, std::common_type_t<T> to) {
    return emulator::change(at, [=](T) { return to; });
}
template <class T> T atomicCAS(T* at, std::common_type_t<T> from, std::common_type_t<T> to) {
    return emulator::change(at, [=](T old) { return old == from ? to : old; });
}
inline void __threadfence() { emulator::fence(); }
inline void __threadfence_system() { emulator::fence(); }
inline void __nanosleep(unsigned nanoseconds) { emulator::nap(nanoseconds); }
[[noreturn]] inline void __trap() { emulator::fail("trap in " + emulator::place_of(emulator::me())); }

using std::max;
using std::min;

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __popcll(unsigned long long bits) { return __builtin_popcountll(bits); }
inline int __clz(int bits) { return bits ? __builtin_clz(bits) : 32; }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
template <class T> T __ldg(const T* at) { return *at; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return std::exp(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline void sincospif(float x, float* sine, float* cosine) {
    const double turned = 3.14159265358979323846 * x;
    *sine = static_cast<float>(std::sin(turned)), *cosine = static_cast<float>(std::cos(turned));
}
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
template <class To, class From> To emulated_cast(From value) {
    To bits;
    static_assert(sizeof bits == sizeof value, "the same bits");
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}
inline int __float_as_int(float x) { return emulated_cast<int>(x); }
inline float __int_as_float(int x) { return emulated_cast<float>(x); }
inline long long __double_as_longlong(double x) { return emulated_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return emulated_cast<double>(x); }
