// Attention of every row over its slot's keys and values.
//
// A block takes one row, one key head and PART positions, of which each warp has 32 with a maximum of their own. The
// warps' results are added in order, and so are the parts', by the block that has the last one. Source: FlashAttention
// (Dao et al., 2022, arXiv:2205.14135).

// One warp's scores, weights and mixed values; rows are heads. Left in `room` (warps, GROUP, LINE).
//
// `own`: query, key and value of the row, of which the key and value of the last position are not in the slot yet.
DEVICE void attend(const half_t* own, int group, const half_t* keys, const half_t* values, int start, int length, float* room) {
    const Place at;
    const int newest = length - 1 - start, home = newest % 8 == at.row ? newest / 8 : -1;  // its tile, if it is mine
    uint4 query[2] = {}, key[4][2] = {}, kept[4][2] = {};
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int tile = 0; tile < 4; tile++) {
            const int position = start + tile * 8 + at.row, place = position * D + i * 32 + at.quarter * 8;
            if (position < length - 1) key[tile][i] = fresh(keys + place), kept[tile][i] = fresh(values + place);
        }
    }
    const half_t* queries = own + (group * GROUP + at.row) * D + at.quarter * 8;
    const half_t* fresh_key = own + QUERY + group * D + at.quarter * 8;
    Seen seen;
    do {
        seen = {};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (at.row < GROUP) query[i] = fresh(queries + i * 32);
            seen.add(query[i]);
#pragma unroll
            for (int tile = 0; tile < 4; tile++) {
                if (tile == home) {
                    key[tile][i] = fresh(fresh_key + i * 32), kept[tile][i] = fresh(fresh_key + KV * D + i * 32);
                    seen.add(key[tile][i]), seen.add(kept[tile][i]);
                }
            }
        }
    } while (any_lane(seen.unwritten()));
    float score[4][2], best = -INFINITY;
#pragma unroll
    for (int tile = 0; tile < 4; tile++) {
        float sum[4] = {};
#pragma unroll
        for (int i = 0; i < 2; i++) multiply_step(sum, query[i], uint4{0, 0, 0, 0}, key[tile][i]);
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const bool there = start + tile * 8 + at.quarter * 2 + j < length;
            score[tile][j] = there ? sum[j] * 0.125f : -INFINITY;
            best = score[tile][j] > best ? score[tile][j] : best;
        }
    }
    for (int other = 1; other < 4; other *= 2) {
        const float its = shuffle_xor(best, other, 0xffffffffu);
        best = its > best ? its : best;
    }
    float weight = 0.0f;
    unsigned p[4];
#pragma unroll
    for (int tile = 0; tile < 4; tile++) {
        const float one = exp_of(score[tile][0] - best), two = exp_of(score[tile][1] - best);
        weight += one + two;
        p[tile] = to_bits(one) | to_bits(two) << 16;
    }
    for (int other = 1; other < 4; other *= 2) weight += shuffle_xor(weight, other, 0xffffffffu);
    float* left = room + (at.warp * GROUP + at.row) * LINE;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float mixed[4][4] = {};
        // A register holds two neighbouring dimensions of one position; transposed, two positions of one dimension.
#pragma unroll
        for (int tile = 0; tile < 4; tile += 2) {
            const uint4 one = kept[tile][i], two = kept[tile + 1][i];
            multiply(mixed[0], p[tile], 0, p[tile + 1], 0, transposed(one.x), transposed(two.x));
            multiply(mixed[1], p[tile], 0, p[tile + 1], 0, transposed(one.y), transposed(two.y));
            multiply(mixed[2], p[tile], 0, p[tile + 1], 0, transposed(one.z), transposed(two.z));
            multiply(mixed[3], p[tile], 0, p[tile + 1], 0, transposed(one.w), transposed(two.w));
        }
#pragma unroll
        for (int r = 0; r < 4; r += 2)
            if (at.row < GROUP)
                *reinterpret_cast<float4*>(left + i * 32 + at.quarter * 8 + r * 2) =
                    float4{mixed[r][0], mixed[r][1], mixed[r + 1][0], mixed[r + 1][1]};
    }
    if (at.quarter == 0 && at.row < GROUP) left[D] = weight, left[D + 1] = best;
}

// `count` results, each a value with its weight and the largest score behind it, `stride` apart, as one. Waits for them.
struct Joined {
    float value = 0.0f, weight = 0.0f, top = -INFINITY;
    template <int MOST, class Load>
    DEVICE void join(const float* line, int d, int count, int stride, Load load) {
        float values[MOST], weights[MOST], tops[MOST];
        bool all;
        do {
            all = true;
#pragma unroll
            for (int i = 0; i < MOST; i++) {
                const bool there = i < count;
                values[i] = there ? load(line + i * stride + d) : 0.0f;
                weights[i] = there ? load(line + i * stride + D) : 0.0f;
                tops[i] = there ? load(line + i * stride + D + 1) : -INFINITY;
                all = all && bits_of(values[i]) != UNWRITTEN && bits_of(weights[i]) != UNWRITTEN && bits_of(tops[i]) != UNWRITTEN;
            }
            if (!all) pause();
        } while (!all);
#pragma unroll
        for (int i = 0; i < MOST; i++) top = tops[i] > top ? tops[i] : top;
#pragma unroll
        for (int i = 0; i < MOST; i++) {
            const float by = exp_of(tops[i] - top);
            weight = fused(weights[i], by, weight);
            value = fused(values[i], by, value);
        }
    }
};

// Units are worked on in rising order, and the last part of a row waits for the others: they are done or being done.
DEVICE void attention(const Step& s, int layer, const unsigned* where, const Mail& mail, float* room) {
    const Place at;
    const int head = at.thread / D, d = at.thread % D;
    for (int unit = block_index(); unit < s.rows * KV * PARTS; unit += block_count()) {
        const int part = unit / (s.rows * KV), m = unit / KV % s.rows, group = unit % KV;
        const int length = int(where[m] & 0xffffu) + 1, used = (length + PART - 1) / PART;
        if (part >= used) continue;
        const int first = part * PART, start = first + at.warp * 32;
        const size_t base = ((size_t(layer) * s.slots + (where[m] >> 16)) * KV + group) * CAPACITY * D;
        synchronise();
        if (start < length) attend(mail.qkv + m * QKV, group, s.keys + base, s.values + base, start, length, room);
        synchronise();
        const int warps = length - first < PART ? (length - first + 31) / 32 : WARPS;
        if (head < GROUP) {
            Joined mine;
            mine.join<WARPS>(room + head * LINE, d, warps, GROUP * LINE, [](const float* x) { return *x; });
            float* lines = mail.parts + (size_t(m) * HEADS + group * GROUP) * PARTS * LINE;
            if (used > 1) {
                float* line = lines + (part * GROUP + head) * LINE;
                line[d] = mine.value;
                if (d == 0) line[D] = mine.weight, line[D + 1] = mine.top;
            }
            if (part == used - 1) {
                Joined all = mine;
                if (used > 1) {
                    all = {};
                    all.join<PARTS>(lines + head * LINE, d, used, GROUP * LINE, [](const float* x) { return fresh(x); });
                }
                mail.mixed[m * QUERY + (group * GROUP + head) * D + d] = to_half(all.value / all.weight);
            }
        }
    }
}
