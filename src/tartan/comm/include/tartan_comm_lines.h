// What a slot does below its calls: its threads meet, thread 0 writes requests and waits, payloads are laid out.
#pragma once

#include "tartan_comm_memory.h"

namespace tartan {

class Slot;

// The first argument of a kernel.
struct Slots {
    octet *base, *window;
    SlotState* states;
    u64 heaps, heap, headers, smalls, results, half;
    u32 local, rank, size, locals, blocks, unused;

    // The communicator of the calling slot.
    TARTAN_DEVICE Slot here() const;
};
static_assert(sizeof(Slots) == SLOTS_BYTES && sizeof(SlotState) <= STATE_BYTES, "as the host has it");

class SlotLines {
  public:
    SlotLines(const SlotLines&) = delete;
    SlotLines& operator=(const SlotLines&) = delete;

    TARTAN_DEVICE int rank() const { return static_cast<int>(slots_.rank + number_); }
    TARTAN_DEVICE int size() const { return static_cast<int>(slots_.size); }
    // This thread's number among those of the slot, and how many these are.
    TARTAN_DEVICE u32 thread() const { return block() * block_threads() + block_thread(); }
    TARTAN_DEVICE u32 threads() const { return slots_.blocks * block_threads(); }

  protected:
    TARTAN_DEVICE explicit SlotLines(const Slots& slots)
        : slots_(slots),
          number_(blockIdx.x / slots.blocks),
          state_(reinterpret_cast<SlotState*>(reinterpret_cast<octet*>(slots.states) + number_ * STATE_BYTES)),
          page_(slots.base + PAGE * (1 + slots.local + number_)) {}

    // ---- The threads of a slot --------------------------------------------------------------------------------------

    TARTAN_DEVICE static u32 block_threads() { return blockDim.x * blockDim.y * blockDim.z; }
    TARTAN_DEVICE static u32 block_thread() {
        return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    }
    TARTAN_DEVICE u32 block() const { return blockIdx.x % slots_.blocks; }
    TARTAN_DEVICE bool leads() const { return thread() == 0; }

    // R5: what a thread of the slot has written before, all see afterwards.
    TARTAN_CALLED void meet() const {
        meet_threads<R5>();
        if (slots_.blocks == 1) return;
        if (block_thread() == 0 && !cross()) state_->leaves[block()] = 1;
        meet_threads<R5>();
        if (state_->leaves[block()]) leave();
    }

    // The blocks of the slot wait for each other; false where all waits were ended.
    TARTAN_CALLED bool cross() const {
        const u32 turn = load_here(&state_->passes);
        if (add_here(&state_->arrived, 1) + 1 == slots_.blocks) {
            state_->arrived = 0;
            add_here(&state_->passes, 1);
            return true;
        }
        for (u32 looks = 0; load_here(&state_->passes) == turn; looks++) {
            if (aborted()) return false;
            nap(looks);
        }
        return true;
    }

    // The same after thread 0 alone has worked: all end where it could not go on.
    TARTAN_DEVICE void meet_all() const {
        meet();
        if (state_->stopped) leave();
    }

    // A common buffer is copied by all threads, one that is a variable of each thread's own by that thread.
    TARTAN_CALLED void copy_out(octet* to, const void* data, u64 bytes) const {
        if (!is_own(data))
            copy(to, static_cast<const octet*>(data), bytes, thread(), threads());
        else if (leads())
            copy(to, static_cast<const octet*>(data), bytes, 0, 1);
    }
    TARTAN_CALLED void copy_in(void* data, const octet* from, u64 bytes) const {
        const bool own = is_own(data);
        copy(static_cast<octet*>(data), from, bytes, own ? 0 : thread(), own ? 1 : threads());
    }

    // ---- Requests: thread 0 alone -----------------------------------------------------------------------------------

    TARTAN_DEVICE bool aborted() const { return load_relaxed(word(slots_.base + ABORT_AT)) == 1; }  // R7

    TARTAN_DEVICE static Asked asked(u64 op, u64 flags, int peer, int tag, u64 bytes) {
        Asked found = {};
        found.op = static_cast<u16>(op), found.flags = static_cast<u16>(flags);
        found.peer = peer, found.tag = tag, found.bytes = bytes;
        return found;
    }

    // Publish a request; false where all waits were ended.
    TARTAN_CALLED bool post(const Asked& request) {
        const u64 seq = state_->seq + 1;
        if (seq > RING && !is_answered(seq - RING, request.op, request.peer, request.tag)) return false;
        state_->seq = seq;
        octet* line = page_ + seq % RING * 64;
        *reinterpret_cast<Asked*>(line + 8) = request;
        store_release<R1>(reinterpret_cast<u64*>(line), seq);
        return true;
    }

    TARTAN_DEVICE octet* reply(u64 seq) const { return page_ + (RING + seq % RING) * 64; }

    // Wait for the reply to the latest request, and keep it.
    TARTAN_CALLED bool answered(u64 op, int peer, int tag) {
        const u64 seq = state_->seq;
        if (!is_answered(seq, op, peer, tag)) return false;
        state_->answer = *reinterpret_cast<const Answer*>(reply(seq) + 8);
        return true;
    }

    TARTAN_CALLED bool is_answered(u64 seq, u64 op, int peer, int tag) {
        const u64* ack = reinterpret_cast<const u64*>(reply(seq));
        const u64 at = static_cast<u64>(reply(seq) - slots_.base);
        const u32 expected = static_cast<u32>(seq > RING ? seq - RING : 0);
        return come([=] { return load_acquire<R4>(ack) == seq; },
                    [=] { describe(op, peer, tag, IN_BASE, at, expected, nullptr); });
    }

    // Wait until something holds; false where all waits were ended. What is waited for is told when it takes long.
    template <class Holds, class Tell> TARTAN_DEVICE bool come(Holds holds, Tell tell) {
        bool told = false;
        for (u32 looks = 0; !holds(); looks++) {
            if (aborted()) {
                state_->stopped = 1;
                return false;
            }
            if (looks == EAGER_LOOKS) {
                tell();
                told = true;
                store_release<EPOCH>(word(page_ + WAIT_AT), ++state_->epoch);
            }
            nap(looks);
        }
        if (told) store_release<EPOCH>(word(page_ + WAIT_AT), ++state_->epoch);
        return true;
    }

    TARTAN_CALLED void describe(u64 call, int peer, int tag, u32 window, u64 at, u32 expected, const Text* text) const {
        Told told = {static_cast<u32>(call), peer, tag, static_cast<u32>(at), static_cast<u32>(at >> 32),
                     window, expected, text ? text->length : 0};
        copy(page_ + WAIT_AT + 4, reinterpret_cast<const octet*>(&told), sizeof told, 0, 1);
        if (!text) return;
        copy(page_ + WAIT_AT + 4 + sizeof told, reinterpret_cast<const octet*>(text->text), text->length, 0, 1);
    }

    // End all ranks with a reason; every thread of the slot leaves at its next meeting.
    struct Mistake {
        u64 code;
        int peer = 0, tag = 0;
        u64 bytes = 0, room = 0;
        const char* name = "";
    };
    TARTAN_CALLED void fail(const Mistake& mistake) {
        Asked request = asked(FAIL, mistake.code, mistake.peer, mistake.tag, mistake.bytes);
        request.address = mistake.room;
        for (u32 at = 0; at + 1 < INLINE_BYTES && mistake.name[at]; at++) request.inside[at] = mistake.name[at];
        post(request);
        come([] { return false; }, [] {});
    }

    TARTAN_CALLED bool are_valid(int peer, int tag, bool any) {
        if ((peer < 0 || peer >= size()) && !(any && peer == ANY_SOURCE)) {
            fail({NO_RANK, peer});
            return false;
        }
        if (tag < 0 && !(any && tag == ANY_TAG)) {
            fail({NO_TAG, peer, tag});
            return false;
        }
        return true;
    }

    template <class T> TARTAN_DEVICE bool are_whole(u64 bytes) {
        if (bytes % Kind<T>::item() == 0) return true;
        fail({NOT_WHOLE, 0, 0, bytes, Kind<T>::item()});
        return false;
    }

    // ---- Payloads: thread 0 alone -----------------------------------------------------------------------------------

    // Take a block of this slot's heap for a payload, and describe that there.
    template <class T> TARTAN_DEVICE bool lay_out(u64 bytes) {
        Text text;
        Kind<T>::describe(text, bytes);
        const u64 begin = BLOCK_HEADER_BYTES + rounded(text.length), all = rounded(begin + bytes);
        if (!take_block(all)) {
            fail({NO_ROOM, 0, 0, bytes});
            return false;
        }
        octet* block = slots_.base + state_->block;
        *word(block + 4) = text.length;
        copy(block + BLOCK_HEADER_BYTES, reinterpret_cast<const octet*>(text.text), text.length, 0, 1);
        store_relaxed(word(block), 1);
        state_->place = state_->block + begin;
        return true;
    }

    TARTAN_CALLED bool take_block(u64 bytes) {
        SlotState& s = *state_;
        while (s.n_blocks && load_acquire<HEAP_TAKE>(word(slots_.base + s.begins[s.first_block])) == 0)
            s.first_block = (s.first_block + 1) % BLOCKS, s.n_blocks--;
        if (s.n_blocks == BLOCKS) return false;
        const u64 start = slots_.heaps + (slots_.local + number_) * slots_.heap, end = start + slots_.heap;
        u64 place = start;
        if (s.n_blocks == 0) {
            if (bytes > slots_.heap) return false;
        } else {
            const u32 last = (s.first_block + s.n_blocks - 1) % BLOCKS;
            const u64 first = s.begins[s.first_block], next = s.begins[last] + s.lengths[last];
            if (next > first) {
                if (bytes <= end - next)
                    place = next;
                else if (bytes >= first - start)
                    return false;
            } else {
                if (bytes >= first - next) return false;
                place = next;
            }
        }
        const u32 at = (s.first_block + s.n_blocks++) % BLOCKS;
        s.begins[at] = place, s.lengths[at] = bytes;
        s.block = place;
        return true;
    }

    const Slots slots_;
    const u32 number_;
    SlotState* const state_;
    octet* const page_;
};

}  // namespace tartan
