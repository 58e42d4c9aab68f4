// `decode/device.cuh` for a CPU: every thread of every block is a fiber, and they take turns where they wait for others.

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <vector>

#define DEVICE inline
#define APART inline
#define KERNEL(threads) void
#define GRID_CONSTANT
#define DYNAMIC_SHARED(name) char* const name = reinterpret_cast<char*>(current->block->room.data())

struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct half_t { unsigned short bits; };

struct Meeting {  // among some lanes of a warp; what they show each other, of this turn and of the one before
    int arrived = 0, turn = 0;
    std::array<std::array<std::array<unsigned, 6>, 32>, 2> shown;
};

struct Block;
struct Copy { void* to; const void* from; unsigned bytes; };
struct Fiber {
    ucontext_t beginning;
    jmp_buf place;
    bool begun = false, done = false;
    Block* block;
    int thread;
    const int* turn = nullptr;  // goes on when this is no longer `seen`
    int seen = 0;
    std::unique_ptr<char[]> stack;
};
struct Block {
    int index, arrived = 0, turn = 0, present = 0;
    std::vector<uint4> room;
    std::array<std::map<unsigned, Meeting>, 15> meetings;  // of each warp, by its lanes
};

inline Fiber* current;
inline jmp_buf scheduler;
inline int blocks, late_copies, unrest;
inline std::mt19937 chance;

inline int thread_index() { return current->thread; }
inline int block_index() { return current->block->index; }
inline int block_count() { return blocks; }

constexpr int THREADS_AT_WORK = 448;
inline void pause() {  // jumps, since a swap of contexts asks the system each time
    if (!_setjmp(current->place)) _longjmp(scheduler, 1);
}
inline void resume(Fiber& fiber) {
    if (_setjmp(scheduler)) return;
    current = &fiber;
    if (fiber.begun) _longjmp(fiber.place, 1);
    fiber.begun = true;
    setcontext(&fiber.beginning);
}

inline void wait_while(const int& turn, int seen) {
    if (turn != seen) return;
    current->turn = &turn, current->seen = seen;
    pause();
    current->turn = nullptr;
}
inline bool waits(const Fiber& fiber) { return fiber.turn && *fiber.turn == fiber.seen; }

inline void synchronise() {
    Block& block = *current->block;
    const int turn = block.turn;
    if (++block.arrived == THREADS_AT_WORK) block.arrived = 0, block.turn++;
    wait_while(block.turn, turn);
}

inline void everybody() {
    Block& block = *current->block;
    block.present++;
    while (block.present < THREADS_AT_WORK + 32) pause();
}

// What every one of these lanes shows, once all have.
inline const std::array<std::array<unsigned, 6>, 32>& show(const std::array<unsigned, 6>& own, unsigned lanes = 0xffffffffu) {
    Meeting& meeting = current->block->meetings[current->thread / 32][lanes];
    const int turn = meeting.turn;
    meeting.shown[turn % 2][current->thread % 32] = own;
    if (++meeting.arrived == __builtin_popcount(lanes)) meeting.arrived = 0, meeting.turn++;
    wait_while(meeting.turn, turn);
    return meeting.shown[turn % 2];
}

inline unsigned bits_of(float x) { unsigned out; std::memcpy(&out, &x, 4); return out; }
inline float as_float(unsigned x) { float out; std::memcpy(&out, &x, 4); return out; }
inline float float_of(unsigned bits) {
    const unsigned short low = (unsigned short)bits;
    _Float16 out;
    std::memcpy(&out, &low, 2);
    return float(out);
}
inline unsigned to_bits(float x) {
    if (std::isnan(x)) return 0x7fffu;  // as a GPU does, whatever bits x has
    const _Float16 half = _Float16(x);
    unsigned short out;
    std::memcpy(&out, &half, 2);
    return out;
}
inline float to_float(half_t x) { return float_of(x.bits); }
inline half_t to_half(float x) {
    const half_t out = {(unsigned short)to_bits(x)};
    if (unrest && chance() % 16 == 0) pause();  // others see the neighbour's half of a word before this one
    return out;
}
inline float low_half(unsigned pair) { return float_of(pair & 0xffffu); }
inline float high_half(unsigned pair) { return float_of(pair >> 16); }
inline float exp_of(float x) { return std::exp(x); }
inline float rsqrt_of(float x) { return 1.0f / std::sqrt(x); }
inline float fused(float a, float b, float c) { return std::fma(a, b, c); }

inline float swap_from(float x, int lane, unsigned lanes) { return as_float(show({bits_of(x)}, lanes)[lane][0]); }
inline float shuffle(float x, int lane) { return swap_from(x, lane, 0xffffffffu); }
inline float shuffle_xor(float x, int other, unsigned lanes) { return swap_from(x, (current->thread % 32) ^ other, lanes); }

inline void multiply(float (&acc)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
    const auto& shown = show({a0, a1, a2, a3, b0, b1});
    const int row = current->thread % 32 / 4, quarter = current->thread % 4;
    for (int i = 0; i < 4; i++) {
        const int n = quarter * 2 + i % 2;
        for (int k = 0; k < 16; k++) {
            const unsigned a = shown[row * 4 + k % 8 / 2][i / 2 + k / 8 * 2];
            const unsigned b = shown[n * 4 + k % 8 / 2][4 + k / 8];
            acc[i] += (k % 2 ? high_half(a) : low_half(a)) * (k % 2 ? high_half(b) : low_half(b));
        }
    }
}

inline bool any_lane(bool x) {
    const auto& shown = show({x});
    return std::any_of(shown.begin(), shown.end(), [](const auto& own) { return own[0] != 0; });
}
inline unsigned highest_halves(unsigned a, unsigned b) {
    const unsigned low = std::max(a & 0xffffu, b & 0xffffu), high = std::max(a >> 16, b >> 16);
    return high << 16 | low;
}

inline unsigned transposed(unsigned x) {
    const auto& shown = show({x});
    const int row = current->thread % 32 / 4, quarter = current->thread % 4;
    unsigned out = 0;
    for (int j = 0; j < 2; j++) out |= (shown[(quarter * 2 + j) * 4 + row / 2][0] >> (row % 2 * 16) & 0xffffu) << (j * 16);
    return out;
}

// Copies come at the latest moment that is allowed, or at once.
struct Pending {
    std::vector<Copy> copies;
    unsigned expected = 0, asked = 0, turn = 0;
};
typedef uint64_t Arrival;
inline std::map<Arrival*, Pending> pending;

inline void prepare(Arrival* at) { pending[at] = {}; }
inline void writes_done() {}
inline void warm_up(const half_t*, unsigned) {}
inline void arrive(Arrival* at) { pending[at].turn++; }
inline void expect_bytes(Arrival* at, unsigned bytes) {
    if (pending[at].expected) std::abort();  // waited for by nobody
    pending[at].expected = bytes;
}
inline void copy_bytes(char* to, const char* from, unsigned bytes, Arrival* at) {
    pending[at].asked += bytes;
    if (late_copies) pending[at].copies.push_back({to, from, bytes});
    else std::memcpy(to, from, bytes);
}
inline void wait_for(Arrival* at, unsigned parity) {
    Pending& own = pending[at];
    while (own.turn % 2 == parity) {
        if (own.expected && own.asked == own.expected) {
            for (const Copy& copy : own.copies) std::memcpy(copy.to, copy.from, copy.bytes);
            own = {{}, 0, 0, own.turn + 1};
        } else {
            pause();
        }
    }
}
inline void tell(unsigned* to, unsigned value) { *to = value; }
inline unsigned peek(const unsigned* from) { return *from; }

inline uint4 fresh(const half_t* from) {
    uint4 out;
    std::memcpy(&out, from, 16);
    return out;
}
inline float fresh(const float* from) { return *from; }
inline float2 fresh_pair(const float* from) { return {from[0], from[1]}; }
inline unsigned load_acquire(const unsigned* from) { return *from; }
inline void add_release(unsigned* to, unsigned value) { *to += value; }
