// Messages of slots: groups of threads inside a running kernel that are ranks of a communicator.
//
//     #include <tartan_comm.h>
//     extern "C" __global__ void relay(tartan::Slots slots, float* rows, int n) {
//         auto me = slots.here();                              // once, by all threads
//         me.recv(rows, n * sizeof(float), 0);                 // every call is made by all threads of the slot
//         me.send(rows, n * sizeof(float), 0);
//     }
//
// A slot is one or more whole blocks. Sizes are in bytes; the type of an item travels with a message. A buffer is the
// same address in all threads, or a variable of each thread's own: then each receives the message, and thread 0's is
// sent. A mistake in a call ends all ranks with its reason.
//
// The rules R1 to R8 of the order of memory are in crates/tartan-comm/README.md; each place that depends on one names it.
#pragma once

#include "tartan_comm_group.h"

namespace tartan {

// Where a message came from.
struct Status {
    int source;
    int tag;
    u64 bytes;
    bool found;  // of `probe`: whether there is a message
};

// A send or a receive that was begun.
struct Request {
    u64 number = 0;
    void* data = nullptr;
    u64 room = 0;
    int to = -1;  // of a send
    bool held = false;
};

enum Fold { SUM, MAX };

// The communicator of a slot. It ends with the kernel's function; the slot sends and receives nothing afterwards.
class Slot : public SlotGroup {
  public:
    TARTAN_DEVICE explicit Slot(const Slots& slots) : SlotGroup(slots) {
        meet();
        if (leads() && state_->entered++) fail({TWICE});
        meet_all();
    }
    TARTAN_DEVICE ~Slot() {
        if (leads()) {
            describe(ENDED, 0, 0, IN_BASE, 0, 0, nullptr);
            store_release<EPOCH>(word(page_ + WAIT_AT), ++state_->epoch | 1);
        }
    }

    // ---- Messages ---------------------------------------------------------------------------------------------------

    // Send, and return when a receive has taken the message.
    template <class T> TARTAN_DEVICE void send(const T* data, u64 bytes, int to, int tag = 0) {
        begin_send(data, bytes, to, tag, 0);
    }

    // Wait for a message and copy it to `data`, which has room for some bytes.
    template <class T>
    TARTAN_DEVICE Status recv(T* data, u64 room, int source = ANY_SOURCE, int tag = ANY_TAG) {
        meet();
        if (leads() && are_valid(source, tag, true) && are_whole<T>(room)) {
            if (post(asked(RECV, 0, source, tag, room)) && answered(RECV, source, tag)) take_answer<T>(room);
        }
        return taken(data);
    }

    // Begin to send; the data may be changed at once. At most 32 of a slot's larger messages wait to be received.
    template <class T> TARTAN_DEVICE Request isend(const T* data, u64 bytes, int to, int tag = 0) {
        begin_send(data, bytes, to, tag, DEFERRED);
        return {state_->number, nullptr, 0, to, true};
    }

    // Begin to receive; `wait` copies the message to `data`, which has room for some bytes.
    template <class T> TARTAN_DEVICE Request irecv(T* data, u64 room, int source = ANY_SOURCE, int tag = ANY_TAG) {
        meet();
        if (leads() && are_valid(source, tag, true) && are_whole<T>(room)) {
            post(asked(RECV, DEFERRED, source, tag, room));
            state_->number = state_->seq;
        }
        meet_all();
        return {state_->number, data, room, -1, true};
    }

    // Wait for a request; T is the type of its items.
    template <class T> TARTAN_DEVICE Status wait(Request& request) {
        end<T>(WAIT, request);
        return request.to < 0 ? taken(static_cast<T*>(request.data)) : came();
    }

    // Whether a request has ended, and then what `wait` would do.
    template <class T> TARTAN_DEVICE bool test(Request& request) {
        end<T>(TEST, request);
        if (state_->answer.status == PENDING) return false;
        if (request.to < 0) taken(static_cast<T*>(request.data));
        return true;
    }

    template <class T, class U>
    TARTAN_DEVICE Status sendrecv(const T* data, u64 bytes, int to, int tag, U* into, u64 room, int source = ANY_SOURCE,
                                  int from_tag = ANY_TAG) {
        Request sending = isend(data, bytes, to, tag);
        const Status status = recv(into, room, source, from_tag);
        wait<T>(sending);
        return status;
    }

    template <class T>
    TARTAN_DEVICE Status sendrecv_replace(T* data, u64 bytes, int to, int tag, int source = ANY_SOURCE,
                                          int from_tag = ANY_TAG) {
        return sendrecv(data, bytes, to, tag, data, bytes, source, from_tag);
    }

    // Where the message comes from that a receive would take; `waits` until there is one.
    TARTAN_CALLED Status probe(int source = ANY_SOURCE, int tag = ANY_TAG, bool waits = true) {
        meet();
        if (leads() && are_valid(source, tag, true) && post(asked(PROBE, waits ? 0 : NOW, source, tag, 0)))
            answered(PROBE, source, tag);
        return came();
    }

    // ---- Collectives: all ranks call the same ones in the same order ------------------------------------------------

    // Wait for all ranks.
    TARTAN_DEVICE void barrier() { exchange({"barrier"}, nullptr, 0); }

    // Give all ranks the items of one.
    template <class T> TARTAN_DEVICE void broadcast(T* data, u64 bytes, int root = 0) {
        require<T>(bytes, root);
        const Call call = {"broadcast", "from", root, Kind<T>::name(), bytes / Kind<T>::item()};
        exchange(call, data, rank() == root ? bytes : 0);
        if (rank() != root) copy_in(data, place_of(root), bytes);
        meet();
    }

    // The items of all ranks, one behind the other in the order of the ranks; returns their bytes. The ranks may give
    // unequal numbers of items.
    template <class T> TARTAN_DEVICE u64 all_gather(const T* mine, u64 bytes, T* all, u64 room) {
        require<T>(bytes, 0);
        exchange({"all_gather", nullptr, 0, Kind<T>::name(), 0, true}, mine, bytes);
        return gathered(all, room);
    }

    // The same on one rank alone; 0 on the others.
    template <class T> TARTAN_DEVICE u64 gather(const T* mine, u64 bytes, T* all, u64 room, int root = 0) {
        require<T>(bytes, root);
        exchange({"gather", "to", root, Kind<T>::name(), 0, true}, mine, bytes);
        return rank() == root ? gathered(all, room) : 0;
    }

    // Sums are ((a0 + a1) + a2) + ... in the order of the ranks, as everywhere. `result` may be `data`.
    template <class T> TARTAN_DEVICE void all_reduce(const T* data, T* result, u64 bytes, Fold fold = SUM) {
        require<T>(bytes, 0);
        const Call call = {fold == SUM ? "all_reduce sum" : "all_reduce max", nullptr, 0, Kind<T>::name(),
                           bytes / Kind<T>::item()};
        exchange(call, data, bytes);
        reduced(call, result, bytes / sizeof(T), fold, true);
    }

    // The same on one rank alone; the others' `result` stays as it is.
    template <class T> TARTAN_DEVICE void reduce(const T* data, T* result, u64 bytes, Fold fold = SUM, int root = 0) {
        require<T>(bytes, root);
        const Call call = {fold == SUM ? "reduce sum" : "reduce max", "to", root, Kind<T>::name(),
                           bytes / Kind<T>::item()};
        exchange(call, data, bytes);
        reduced(call, result, bytes / sizeof(T), fold, rank() == root);
    }

    // Give each rank its part of one rank's items; returns the bytes of this rank's. `lengths` are the bytes of the
    // parts, which lie one behind the other; both are read on the root alone, in a common buffer.
    template <class T>
    TARTAN_DEVICE u64 scatter(const T* parts, const u64* lengths, T* mine, u64 room, int root = 0) {
        require<T>(0, root);
        exchange_bundle<T>({"scatter", "from", root}, parts, rank() == root ? lengths : nullptr);
        return unbundled(place_of(root), mine, 0, room, true);
    }

    // Give each rank a part of this rank's items, as `scatter` does; returns the bytes of what all gave this one, which
    // lie one behind the other in the order of the ranks.
    template <class T> TARTAN_DEVICE u64 all_to_all(const T* parts, const u64* lengths, T* all, u64 room) {
        exchange_bundle<T>({"all_to_all"}, parts, lengths);
        u64 sum = 0;
        for (int from = 0; from < size(); from++) sum += unbundled(place_of(from), all, sum, room, from + 1 == size());
        return sum;
    }

  private:
    // ---- What collectives return ------------------------------------------------------------------------------------

    template <class T> TARTAN_DEVICE void require(u64 bytes, int root) {
        meet();
        if (leads() && are_valid(root, 0, false)) are_whole<T>(bytes);
        meet_all();
    }

    template <class T> TARTAN_DEVICE u64 gathered(T* all, u64 room) {
        const u64 sum = all_bytes();
        require_room(sum, room);
        octet* to = reinterpret_cast<octet*>(all);
        for (int from = 0; from < size(); from++) {
            copy_in(to, place_of(from), bytes_of(from));
            to += bytes_of(from);
        }
        meet();
        return sum;
    }

    TARTAN_CALLED void require_room(u64 bytes, u64 room) {
        meet();
        if (leads() && bytes > room) fail({RESULT_TOO_LONG, 0, 0, bytes, room});
        meet_all();
    }

    template <class T> TARTAN_DEVICE static T join(T a, T b, Fold fold) {
        if (fold == SUM) return static_cast<T>(a + b);
        return a >= b || a != a ? a : b;  // a value that is no number stays, as in NumPy
    }
    template <class T> TARTAN_DEVICE T folded(u64 at, Fold fold) const {
        T sum = reinterpret_cast<const T*>(place_of(0))[at];
        for (int from = 1; from < size(); from++)
            sum = join(sum, reinterpret_cast<const T*>(place_of(from))[at], fold);
        return sum;
    }

    // Fold the contributions: the ranks of a node divide a large sum, and each reads the whole.
    template <class T> TARTAN_DEVICE void reduced(const Call& call, T* result, u64 items, Fold fold, bool wanted) {
        octet* shared = room_behind(items * sizeof(T));
        if (!shared) {
            const bool own = is_own(result);
            for (u64 at = own ? 0 : thread(); wanted && at < items; at += own ? 1 : threads())
                result[at] = folded<T>(at, fold);
            meet();
            return;
        }
        const u64 share = items / slots_.locals, more = items % slots_.locals, local = slots_.local + number_;
        const u64 start = local * share + (local < more ? local : more), stop = start + share + (local < more);
        for (u64 at = start + thread(); at < stop; at += threads())
            reinterpret_cast<T*>(shared)[at] = folded<T>(at, fold);
        meet();
        if (leads()) arrive(call, 2);
        meet_all();
        if (wanted) copy_in(result, shared, items * sizeof(T));
        meet();
    }

    // ---- Bundles: a part for each rank ------------------------------------------------------------------------------

    // A number of parts, for each where it begins, how long it is, and where its description is; descriptions; parts.
    template <class T> TARTAN_DEVICE void exchange_bundle(const Call& call, const T* parts, const u64* lengths) {
        const u64 texts = 8 + size() * 32, first = rounded(texts + size() * TEXT_BYTES);
        u64 bytes = lengths ? first : 0, given = 0;
        for (int to = 0; lengths && to < size(); to++) bytes += rounded(lengths[to]);
        octet* bundle = begin_exchange(call, bytes);
        if (lengths) {
            if (leads()) reinterpret_cast<u64*>(bundle)[0] = size();
            u64 place = first;
            for (int to = 0; to < size(); to++) {
                if (leads() && are_whole<T>(lengths[to])) {
                    Text text;
                    Kind<T>::describe(text, lengths[to]);
                    u64* row = reinterpret_cast<u64*>(bundle + 8 + to * 32);
                    row[0] = place, row[1] = lengths[to], row[2] = texts + to * TEXT_BYTES, row[3] = text.length;
                    copy(bundle + row[2], reinterpret_cast<const octet*>(text.text), text.length, 0, 1);
                }
                copy_out(bundle + place, reinterpret_cast<const octet*>(parts) + given, lengths[to]);
                place += rounded(lengths[to]), given += lengths[to];
            }
        }
        end_exchange(call);
    }

    // Copy this rank's part of a bundle behind what is there already; returns its bytes.
    template <class T> TARTAN_DEVICE u64 unbundled(octet* bundle, T* all, u64 before, u64 room, bool last) {
        const u64* row = reinterpret_cast<const u64*>(bundle + 8 + rank() * 32);
        const u64 bytes = row[1];
        require_room(before + bytes, room);
        if (leads() && !Kind<T>::is_described(reinterpret_cast<const char*>(bundle + row[2]), static_cast<u32>(row[3])))
            fail({OTHER_TYPE, 0, 0, 0, 0, Kind<T>::name()});
        meet_all();
        copy_in(reinterpret_cast<octet*>(all) + before, bundle + row[0], bytes);
        if (last) meet();
        return bytes;
    }

    // ---- Payloads ---------------------------------------------------------------------------------------------------

    template <class T> TARTAN_DEVICE void begin_send(const T* data, u64 bytes, int to, int tag, u64 flags) {
        meet();
        const bool in_line = bytes <= INLINE_BYTES;
        if (leads()) {
            if (are_valid(to, tag, false) && are_whole<T>(bytes) && !in_line) lay_out<T>(bytes);
        }
        meet_all();
        if (!in_line) {
            copy_out(slots_.base + state_->place, data, bytes);
            meet();
        }
        if (leads()) {
            Asked request = asked(SEND, flags, to, tag, bytes);
            if (in_line) {
                request.flags |= IN_LINE | Kind<T>::character() | ONE_DIMENSION;
                copy(request.inside, reinterpret_cast<const octet*>(data), bytes, 0, 1);
            } else {
                request.address = state_->block;
            }
            const bool posted = post(request);
            state_->number = state_->seq;
            if (posted && !flags && answered(SEND, to, tag)) refuse_long(to);
        }
        meet_all();
    }

    TARTAN_CALLED void refuse_long(int to) {
        const Answer& answer = state_->answer;
        if (answer.status == IS_TOO_LONG) fail({SENT_TOO_LONG, to, answer.tag, answer.bytes});
    }

    // Look at what a receive has brought: its length and its type.
    template <class T> TARTAN_DEVICE void take_answer(u64 room) {
        const Answer& answer = state_->answer;
        if (answer.status == IS_TOO_LONG) {
            fail({TOO_LONG, answer.source, answer.tag, answer.bytes, room});
            return;
        }
        bool fits;
        if (answer.flags & IN_LINE) {
            fits = Kind<T>::is(static_cast<char>(answer.flags & 0xFF));
        } else {
            octet* block = slots_.base + answer.address;
            const u32 length = *word(block + 4);
            fits = Kind<T>::is_described(reinterpret_cast<const char*>(block + BLOCK_HEADER_BYTES), length);
            state_->place = answer.address + BLOCK_HEADER_BYTES + rounded(length);
        }
        if (!fits) fail({OTHER_TYPE, answer.source, answer.tag, 0, 0, Kind<T>::name()});
    }

    // What the latest answer says, for all threads.
    TARTAN_CALLED Status came() const {
        meet_all();
        const Answer& answer = state_->answer;
        return {answer.source, answer.tag, answer.bytes, answer.status == DONE};
    }

    // The same, and the message that came with it.
    template <class T> TARTAN_DEVICE Status taken(T* data) {
        const Status status = came();
        const Answer& answer = state_->answer;
        const bool in_line = answer.flags & IN_LINE;
        if (answer.status == DONE)
            copy_in(data, in_line ? answer.inside : slots_.base + state_->place, answer.bytes);
        meet();
        if (leads() && answer.status == DONE && !in_line)
            store_release<HEAP_GIVE>(word(slots_.base + answer.address), 0u);
        return status;
    }

    template <class T> TARTAN_DEVICE void end(u64 op, Request& request) {
        meet();
        if (leads()) {
            Asked request_of = asked(op, 0, 0, 0, 0);
            request_of.address = request.number;
            if (!request.held) {
                fail({FREED});
            } else if (post(request_of) && answered(op, 0, 0) && state_->answer.status != PENDING) {
                if (request.to >= 0)
                    refuse_long(request.to);
                else
                    take_answer<T>(request.room);
            }
        }
        meet_all();
        if (state_->answer.status != PENDING) request.held = false;
    }
};

TARTAN_DEVICE inline Slot Slots::here() const { return Slot(*this); }

}  // namespace tartan
