// The weights' way into shared memory: one thread asks for them, unit by unit in the order of their use.
//
// Only a little is on its way at a time: what the blocks hand each other would queue up behind it.

constexpr int CHUNK = 14336, DEPTH = 2;  // bytes of a copy, and copies on their way

enum Phase { QKV_PHASE, ATTENTION_PHASE, OUT_PHASE, GATE_PHASE, DOWN_PHASE, PHASES };

constexpr int UNITS_QKV = QKV / 16, UNITS_STREAM = HIDDEN / 8;
constexpr int UNITS_GATE = (MLP / 8 + GATE_TILES - 1) / GATE_TILES;
constexpr int UNITS_LOGITS = ((VOCABULARY + 7) / 8 + LOGIT_TILES - 1) / LOGIT_TILES;

// Between the supplier and the warps that compute, in shared memory.
struct Exchange {
    Arrival there[PHASES];     // a unit's weights; those of the logits come as gate/up's
    Arrival flow[DEPTH];       // the copies on their way
    unsigned finished[PHASES]; // units whose weights and sums nobody needs any more; for attention, layers
};
static_assert(sizeof(Exchange) <= 128, "the host reserves less");

struct Supply {
    const Step& s;
    char *a, *b;
    const unsigned* where;
    Exchange* with;
    unsigned issued, retired, tags;

    DEVICE void retire() {
        const unsigned slot = retired % DEPTH, phase = tags >> (slot * 4) & 15;
        wait_for(with->flow + slot, retired / DEPTH & 1);
        if (phase < PHASES) arrive(with->there + phase);
        retired++;
    }

    // Blocks until so many units of a phase are finished; what is on its way is told meanwhile.
    APART void until(Phase phase, unsigned count) {
        if (peek(with->finished + phase) >= count) return;
        while (retired < issued) retire();
        while (peek(with->finished + phase) < count) pause();
    }

    DEVICE void copy(char* to, const half_t* from, int bytes, unsigned tag) {
        const char* source = reinterpret_cast<const char*>(from);
        for (int at = 0; at < bytes; at += CHUNK) {
            const int size = bytes - at < CHUNK ? bytes - at : CHUNK;
            if (issued - retired == DEPTH) retire();
            const unsigned slot = issued % DEPTH;
            tags = (tags & ~(15u << (slot * 4))) | (at + CHUNK >= bytes ? tag : 15u) << (slot * 4);
            expect_bytes(with->flow + slot, size);
            copy_bytes(to + at, source + at, size, with->flow + slot);
            issued++;
        }
    }

    // `tiles` of 8 weight rows from row `first` on, as far as `limit`; with a partner as many again, so many rows further.
    APART void rows(char* room, const half_t* weight, int inner, int tiles, int first, int limit, int partner, unsigned tag) {
        const int count = limit - first < tiles * 8 ? limit - first : tiles * 8;
        const half_t* from = weight + size_t(first) * inner;
        copy(room, from, count * inner * 2, partner ? 15u : tag);
        if (partner) copy(room + tiles * tile_bytes(inner), from + size_t(partner) * inner, count * inner * 2, tag);
    }

    // The keys and values that this block's attention will read.
    APART void warm_slots(int layer) {
        for (int unit = block_index(); unit < s.rows * KV * PARTS; unit += block_count()) {
            const int part = unit / (s.rows * KV), m = unit / KV % s.rows, group = unit % KV;
            const int length = int(where[m] & 0xffffu), first = part * PART, count = length - first < PART ? length - first : PART;
            if (count <= 0) continue;
            const size_t base = ((size_t(layer) * s.slots + (where[m] >> 16)) * KV + group) * CAPACITY * D + first * D;
            warm_up(s.keys + base, count * D * 2);
            warm_up(s.values + base, count * D * 2);
        }
    }

    DEVICE static unsigned mine(int units) {
        const int block = block_index(), blocks = block_count();
        return block < units ? (units - block - 1) / blocks + 1 : 0;
    }

    DEVICE void run() {
        const unsigned qkv = mine(UNITS_QKV), stream = mine(UNITS_STREAM), gate = mine(UNITS_GATE), logits = mine(UNITS_LOGITS);
        const int block = block_index(), blocks = block_count();
        warm_slots(0);
        for (int layer = 0; layer < LAYERS; layer++) {
            const Layer& w = s.layers[layer];
            const unsigned done = layer;
            until(DOWN_PHASE, done * stream);
            for (unsigned k = 0; k < qkv; k++) {
                const int unit = block + k * blocks;
                until(QKV_PHASE, done * qkv + k);
                rows(b, w.qkv, HIDDEN, 1, unit / 4 * D + unit % 4 * 8, QKV, D / 2, QKV_PHASE);
            }
            for (unsigned k = 0; k < stream; k++) {
                until(OUT_PHASE, done * stream + k);
                rows(b + OUT_AT, w.out, QUERY, 1, (block + k * blocks) * 8, HIDDEN, 0, OUT_PHASE);
            }
            for (unsigned k = 0; k < gate; k++) {
                until(GATE_PHASE, done * gate + k);
                rows(a, w.gate_up, HIDDEN, GATE_TILES, (block + k * blocks) * GATE_TILES * 8, MLP, MLP, GATE_PHASE);
            }
            if (layer + 1 < LAYERS) warm_slots(layer + 1);
            until(ATTENTION_PHASE, done + 1);
            until(OUT_PHASE, (done + 1) * stream);
            for (unsigned k = 0; k < stream; k++) {
                until(DOWN_PHASE, done * stream + k);
                rows(b, w.down, MLP, 1, (block + k * blocks) * 8, HIDDEN, 0, DOWN_PHASE);
            }
        }
        for (unsigned k = 0; k < logits; k++) {
            until(GATE_PHASE, LAYERS * gate + k);
            rows(a, s.head, HIDDEN, LOGIT_TILES, (block + k * blocks) * LOGIT_TILES * 8, VOCABULARY, 0, GATE_PHASE);
        }
        while (retired < issued) retire();
    }
};
