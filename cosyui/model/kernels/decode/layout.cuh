// One decode step of the speech LLM, from the entered stream to the logits, as a single kernel.
//
// One block runs on each multiprocessor until the step is done. A layer has five phases: query/key/value, attention,
// output, gate/up, down. What a phase reads of the weights does not depend on the phases before it, so a warp of its own
// has the next phases' weights copied into shared memory meanwhile (see supply.cuh). What blocks hand each other carries
// its own flag (see handover.cuh): nobody waits for all, and no barrier has to wait for the copies.
//
// Products: `mma` tiles of 16 rows, which is as many as there may be, and 8 columns. The warps of a block share the inner
// dimension in steps of 64, and their sums are added in the order of the warps. So a row's bits depend neither on the
// batch nor on the device's size. A thread's 16 bytes of a weight row are 8 neighbours: the tile's inner index is
// permuted, alike for both factors.
//
// Sizes come as macros (see llm_whole.py): HIDDEN, HEADS, KV, MLP, LAYERS, VOCABULARY, CAPACITY, BFLOAT16, GATE_TILES,
// LOGIT_TILES, MOST_ROWS, EPSILON, STREAM_SCALE, GATE_SCALE, SHARED_BYTES. A head has 64 dimensions. `half_t`: float16 or
// bfloat16.

constexpr int WARPS = 14, THREADS = 32 * WARPS;  // that compute; one more warp copies
constexpr int D = 64, GROUP = HEADS / KV, QUERY = HEADS * D, QKV = QUERY + 2 * KV * D;
constexpr int PART = WARPS * 32;  // positions of a slot that a block takes together
constexpr int PARTS = (CAPACITY + PART - 1) / PART;
constexpr int LINE = D + 4;       // what a part gives for one head: its values, their weight, the largest score
constexpr int SQUARES = HIDDEN / 8;

constexpr int most(int a, int b) { return a > b ? a : b; }
constexpr int steps_each(int inner) { return (inner / 64 + WARPS - 1) / WARPS; }
constexpr int tile_bytes(int inner) { return 16 * inner; }  // of 8 weight rows
// Floats of one row of the warps' sums: so many that rows lie in different banks.
constexpr int sums_row(int tiles) { return tiles * 8 + (tiles % 2 ? 0 : 8); }
constexpr int sums_bytes(int tiles) { return WARPS * 16 * sums_row(tiles) * 4; }

// Three rooms of shared memory: the weights of gate/up or of the logits; the other weights, and what the warps of
// attention hand each other, or those of query/key/value; sums of the warps.
constexpr int OUT_AT = 2 * tile_bytes(HIDDEN), MIXED_AT = OUT_AT + tile_bytes(QUERY);
constexpr int MIXED = most(WARPS * GROUP * LINE * 4, sums_bytes(2));
constexpr int GATE_SUMS = sums_bytes(2 * GATE_TILES), LOGIT_SUMS = sums_bytes(LOGIT_TILES);
constexpr int ROOM_A = most(most(2 * GATE_TILES, LOGIT_TILES) * tile_bytes(HIDDEN), GATE_SUMS);
constexpr int ROOM_B = most(most(MIXED_AT + MIXED, tile_bytes(MLP)), LOGIT_SUMS);
constexpr int ROOM_C = sums_bytes(1);
static_assert(ROOM_A + ROOM_B + ROOM_C + MOST_ROWS * 8 + 128 == SHARED_BYTES, "the host reserves another size");
static_assert(HIDDEN % 64 == 0 && MLP % 64 == 0 && GROUP <= 7 && MOST_ROWS <= 16, "no layout for these sizes");

// What the blocks hand each other in one layer, in halves for each row: floats come last.
constexpr int MAIL_MIXED = QKV, MAIL_H_OUT = MAIL_MIXED + QUERY, MAIL_PRODUCT = MAIL_H_OUT + HIDDEN;
constexpr int MAIL_H_DOWN = MAIL_PRODUCT + MLP, MAIL_SQUARES_OUT = MAIL_H_DOWN + HIDDEN;
constexpr int MAIL_SQUARES_DOWN = MAIL_SQUARES_OUT + 2 * SQUARES, MAIL_PARTS = MAIL_SQUARES_DOWN + 2 * SQUARES;
constexpr int PARTS_ROW = HEADS * PARTS * LINE, MAIL = MAIL_PARTS + 2 * PARTS_ROW;

struct Layer {
    const half_t *qkv, *bias, *out, *mlp_norm, *gate_up, *down, *next_norm;
};

struct Step {
    Layer layers[LAYERS];
    const half_t* head;
    const int *slot, *at;         // (rows,)
    const float* turn;            // (rows, D): cos, sin
    float* x;                     // (rows, HIDDEN)
    half_t* h;                    // (rows, HIDDEN): x times the next norm's weight, by STREAM_SCALE
    float* squares;               // (rows, SQUARES)
    float* logits;                // (rows, VOCABULARY)
    half_t *keys, *values;        // (LAYERS, slots, KV, CAPACITY, D)
    half_t* mail;                 // (LAYERS, MOST_ROWS * MAIL): unwritten
    unsigned* meeting;
    int rows, slots;
};
