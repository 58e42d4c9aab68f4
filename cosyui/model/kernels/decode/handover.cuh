// What blocks hand each other: memory whose words all have the bits of `UNWRITTEN` until somebody writes them once.
//
// Who reads looks again until nothing is unwritten, so data and flag are one store, and no fence is needed. No
// conversion yields these bits: a number that is none becomes another one. When a block has seen the whole of a later
// phase's result, all have read what came before it, which is then wiped for the next launch.

constexpr unsigned UNWRITTEN = 0xffffffffu;

// Where a thread stands; `row` and `quarter` are those of its part of a tile.
struct Place {
    int thread, warp, lane, row, quarter;
    DEVICE Place() : thread(thread_index()), warp(thread / 32), lane(thread % 32), row(lane / 4), quarter(lane % 4) {}
};

// Whether any half of the words was unwritten.
struct Seen {
    unsigned highest = 0;
    DEVICE void add(uint4 w) { highest = highest_halves(highest_halves(highest, highest_halves(w.x, w.y)), highest_halves(w.z, w.w)); }
    DEVICE bool unwritten() const { return (highest & 0xffffu) == 0xffffu || highest >> 16 == 0xffffu; }
};

// The layer's mail, cut into what each phase leaves.
struct Mail {
    half_t *qkv, *mixed, *h_out, *product, *h_down;  // (rows, QKV), (rows, QUERY), (rows, HIDDEN), (rows, MLP) ...
    float *squares_out, *squares_down, *parts;       // (rows, SQUARES) twice, (rows, KV, PARTS, GROUP, LINE)
    DEVICE Mail(half_t* all, int layer) {
        half_t* own = all + size_t(layer) * MOST_ROWS * MAIL;
        qkv = own, mixed = own + MOST_ROWS * MAIL_MIXED, h_out = own + MOST_ROWS * MAIL_H_OUT;
        product = own + MOST_ROWS * MAIL_PRODUCT, h_down = own + MOST_ROWS * MAIL_H_DOWN;
        squares_out = reinterpret_cast<float*>(own + MOST_ROWS * MAIL_SQUARES_OUT);
        squares_down = reinterpret_cast<float*>(own + MOST_ROWS * MAIL_SQUARES_DOWN);
        parts = reinterpret_cast<float*>(own + MOST_ROWS * MAIL_PARTS);
    }
};

// This block's share of making `count` elements unwritten again, among the first `blocks`.
template <class T>
DEVICE void wipe(T* from, int count, int blocks) {
    blocks = blocks < block_count() ? blocks : block_count();
    uint4* words = reinterpret_cast<uint4*>(from);
    const int size = count * int(sizeof(T)) / 16, step = blocks * THREADS;
    if (block_index() >= blocks) return;
    for (int i = block_index() * THREADS + thread_index(); i < size; i += step)
        words[i] = uint4{UNWRITTEN, UNWRITTEN, UNWRITTEN, UNWRITTEN};
}

// All blocks meet, once in a step: the last to arrive flips the top bit of the word, for which all wait.
DEVICE void meet(unsigned* word) {
    synchronise();
    if (thread_index() == 0) {
        const unsigned before = load_acquire(word) & 0x80000000u;
        add_release(word, block_index() == 0 ? 0x80000000u - (block_count() - 1) : 1u);
        while ((load_acquire(word) & 0x80000000u) == before) pause();
    }
    synchronise();
}
