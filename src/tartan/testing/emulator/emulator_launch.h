// How a host launches the kernels of this file: by name, with the addresses of their arguments.
#pragma once

namespace emulator {

// What an argument must be: "*" for a pointer, "const " before it, kind and bytes: "const *f4", "*u8", "i4".
template <class T> std::string type_name() {
    using Bare = std::remove_cv_t<T>;
    const char kind = std::is_floating_point<Bare>::value ? 'f' : std::is_signed<Bare>::value ? 'i' : 'u';
    return kind + std::to_string(sizeof(Bare));
}
template <class T> struct Described {
    static std::string name() { return type_name<T>(); }
};
template <class T> struct Described<T*> {
    static std::string name() { return (std::is_const<T>::value ? "const *" : "*") + type_name<T>(); }
};

template <class... Parameters> std::string describe(void (*)(Parameters...)) {
    std::string all;
    ((all += (all.empty() ? "" : ",") + Described<Parameters>::name()), ...);
    return all;
}

template <class... Parameters, size_t... At>
std::string start(void (*kernel)(Parameters...), const Launch& launch, void** arguments, std::index_sequence<At...>) {
    return run(launch, [=] { kernel(*static_cast<std::remove_reference_t<Parameters>*>(arguments[At])...); });
}

struct Argument {
    void* data;       // of an array its bytes, else the value
    uint64_t n_bytes;
    int32_t is_array;
    int32_t is_written;
};

// Run a kernel on copies of its arrays that end at guard pages; return 0, or 1 with what went wrong in `error`.
template <class... Parameters>
int launch(void (*kernel)(Parameters...), const unsigned* sizes, uint64_t seed, const Argument* given, char* error, size_t room) {
    static std::mutex one_at_a_time;
    std::lock_guard<std::mutex> hold(one_at_a_time);
    constexpr size_t n = sizeof...(Parameters);
    void* arguments[n ? n : 1];
    char* addresses[n ? n : 1];
    std::vector<Guarded*> guarded(n);
    for (size_t at = 0; at < n; at++) {
        arguments[at] = given[at].data;
        if (!given[at].is_array) continue;
        buffers.push_back(std::make_unique<Guarded>(given[at].n_bytes, "argument " + std::to_string(at)));
        guarded[at] = buffers.back().get();
        std::memcpy(guarded[at]->data, given[at].data, given[at].n_bytes);
        addresses[at] = guarded[at]->data;
        arguments[at] = &addresses[at];
    }
    const Launch wanted{{sizes[0], sizes[1], sizes[2]}, {sizes[3], sizes[4], sizes[5]}, seed};
    std::string found = start(kernel, wanted, arguments, std::make_index_sequence<n>{});
    for (size_t at = 0; at < n; at++) {
        if (!guarded[at]) continue;
        if (found.empty() && guarded[at]->underrun())
            found = "something was written before the beginning of " + guarded[at]->name;
        if (given[at].is_written) std::memcpy(given[at].data, guarded[at]->data, given[at].n_bytes);
    }
    buffers.clear();
    std::snprintf(error, room, "%s", found.c_str());
    return found.empty() ? 0 : 1;
}

using Launcher = int (*)(const unsigned*, uint64_t, const Argument*, char*, size_t);

}  // namespace emulator

// The two functions by which a host finds a kernel.
#define EMULATED_KERNEL(kernel)                                                                                        \
    extern "C" const char* describe_##kernel() {                                                                       \
        static const std::string found = emulator::describe(kernel);                                                   \
        return found.c_str();                                                                                          \
    }                                                                                                                  \
    extern "C" int launch_##kernel(const unsigned* sizes, uint64_t seed, const emulator::Argument* given, char* error, \
                                   size_t room) {                                                                      \
        return emulator::launch(kernel, sizes, seed, given, error, room);                                              \
    }

// A program that reads one launch from stdin, runs it, and writes the arrays to stdout.
#ifdef EMULATOR_PROGRAM
namespace emulator {
template <class T> T read_one() {
    T value;
    if (std::fread(&value, sizeof value, 1, stdin) != 1) std::exit(4);
    return value;
}
inline int serve(Launcher launcher) {
    unsigned sizes[6];
    for (unsigned& size : sizes) size = read_one<uint32_t>();
    std::vector<Argument> given(read_one<uint32_t>());
    std::vector<std::vector<char>> contents(given.size());
    for (size_t at = 0; at < given.size(); at++) {
        given[at].is_array = read_one<int32_t>();
        given[at].is_written = given[at].is_array;
        contents[at].resize(given[at].n_bytes = read_one<uint64_t>());
        if (std::fread(contents[at].data(), 1, contents[at].size(), stdin) != contents[at].size()) std::exit(4);
        given[at].data = contents[at].data();
    }
    char error[1024];
    if (launcher(sizes, 0, given.data(), error, sizeof error) != 0) fail(error);
    for (size_t at = 0; at < given.size(); at++)
        if (given[at].is_array) std::fwrite(contents[at].data(), 1, contents[at].size(), stdout);
    return 0;
}
}  // namespace emulator
#define EMULATED_PROGRAM(kernel) \
    int main() { return emulator::serve(launch_##kernel); }
#endif
