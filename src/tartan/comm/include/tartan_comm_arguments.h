// Whether a kernel takes what it is given: the host appends assertions of it to the source, so that the compiler looks.
#pragma once

#include "tartan_comm_lines.h"

namespace tartan {
namespace given {

template <char letter, char kind, u64 bytes>
TARTAN_DEVICE constexpr char kind_of(const Item<letter, kind, bytes>*) {
    return kind == 'b' ? 'u' : kind;
}
template <char letter, char kind, u64 bytes>
TARTAN_DEVICE constexpr bool are_bytes(const Item<letter, kind, bytes>*) {
    return letter == 'B';
}
template <class T> struct Bare {
    using type = T;
};
template <class T> struct Bare<const T> {
    using type = T;
};

// Types without a kind of their own, such as structures, take items of their size.
template <class T> TARTAN_DEVICE constexpr bool takes_items(char kind, u64 bytes) {
    using Own = Kind<typename Bare<T>::type>;
    return bytes == sizeof(T) && (are_bytes(static_cast<Own*>(nullptr)) || kind_of(static_cast<Own*>(nullptr)) == kind);
}

template <class T> struct Parameter {
    TARTAN_DEVICE static constexpr bool takes(bool array, char kind, u64 bytes) {
        return !array && takes_items<T>(kind, bytes);
    }
};
template <class T> struct Parameter<T*> {
    TARTAN_DEVICE static constexpr bool takes(bool array, char kind, u64 bytes) {
        return array && takes_items<T>(kind, bytes);
    }
};

template <class First, class... Others> struct Parameters {
    static constexpr int count = sizeof...(Others);
    TARTAN_DEVICE static constexpr bool takes(int wanted, bool array, char kind, u64 bytes) {
        int at = 0;
        bool found = false;
        ((found = at++ == wanted ? Parameter<Others>::takes(array, kind, bytes) : found), ...);
        return found;
    }
};
template <class First> struct IsSlots {
    static constexpr bool value = false;
};
template <class... Others> struct IsSlots<Parameters<Slots, Others...>> {
    static constexpr bool value = true;
};
struct None {};
TARTAN_DEVICE Parameters<None> parameters_of(void (*)());
template <class First, class... Others>
TARTAN_DEVICE Parameters<First, Others...> parameters_of(void (*)(First, Others...));

}  // namespace given
}  // namespace tartan
