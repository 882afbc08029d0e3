// The floor of a barrier: processes that count in shared memory and wake each other by one futex, and do nothing else.
//
// _comm_floor PROCESSES LOOKS TIMES ROUNDS: LOOKS is how often each offers its processor to the others before it
// sleeps. Prints the seconds of a barrier, one line a round after a first one that does not count.
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <atomic>
#include <chrono>
#include <new>

#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

struct Shared {
    alignas(64) std::atomic<uint32_t> arrived{0};
    alignas(64) std::atomic<uint32_t> passed{0};
    alignas(64) std::atomic<uint32_t> sleepers{0};
};

static void wait_for_all(Shared& shared, uint32_t processes, int looks) {
    uint32_t passed = shared.passed.load();
    if (shared.arrived.fetch_add(1) + 1 == processes) {
        shared.arrived.store(0);
        shared.passed.store(passed + 1);
        if (shared.sleepers.load()) syscall(SYS_futex, &shared.passed, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
        return;
    }
    for (int look = 0; look < looks; look++) {
        if (shared.passed.load() != passed) return;
        sched_yield();
    }
    shared.sleepers.fetch_add(1);
    while (shared.passed.load() == passed) syscall(SYS_futex, &shared.passed, FUTEX_WAIT, passed, nullptr, nullptr, 0);
    shared.sleepers.fetch_sub(1);
}

static void meet(Shared& shared, uint32_t me, uint32_t processes, int looks, int times, int rounds) {
    setsid();  // as the ranks of the benchmark: Linux divides the processors among sessions
    for (int round = 0; round <= rounds; round++) {
        wait_for_all(shared, processes, looks);
        auto start = std::chrono::steady_clock::now();
        for (int k = 0; k < times; k++) wait_for_all(shared, processes, looks);
        std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        if (me == 0 && round > 0) printf("%.9f\n", seconds.count() / times);
    }
    fflush(stdout);
}

int main(int n_words, char** words) {
    if (n_words != 5) return 2;
    uint32_t processes = atoi(words[1]);
    void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    auto* shared = new (memory) Shared;
    for (uint32_t me = 0; me < processes; me++) {
        pid_t child = fork();
        if (child < 0) return 1;
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            meet(*shared, me, processes, atoi(words[2]), atoi(words[3]), atoi(words[4]));
            _exit(0);
        }
    }
    while (wait(nullptr) > 0) {
    }
    return 0;
}
