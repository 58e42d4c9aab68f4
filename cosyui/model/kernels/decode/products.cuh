// Weights on their way, and products with them.

// For every row of the stream, four lanes to each: by what a product of `h` is multiplied to be that of its norm.
struct NormFactors {
    const float* squares;
    int rows;
    float2 part[SQUARES / 8];
    DEVICE NormFactors(const float* squares, int rows) : squares(squares), rows(rows) { look(); }
    DEVICE void look() {
        const Place at;
        const int m = at.warp * 8 + at.row;
        const float* own = squares + m * SQUARES + at.quarter * 2;
#pragma unroll
        for (int i = 0; i < SQUARES / 8; i++) part[i] = m < rows ? fresh_pair(own + i * 8) : float2{0.0f, 0.0f};
    }
    DEVICE bool unwritten() const {
        bool out = false;
#pragma unroll
        for (int i = 0; i < SQUARES / 8; i++)
            out = out || bits_of(part[i].x) == UNWRITTEN || bits_of(part[i].y) == UNWRITTEN;
        return out;
    }
    DEVICE void write(float* factor) const {
        const Place at;
        const int m = at.warp * 8 + at.row;
        if (at.warp * 8 >= rows) return;
        float2 sum = {0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < SQUARES / 8; i++) sum.x += part[i].x, sum.y += part[i].y;
        float all = sum.x + sum.y;
        for (int other = 1; other < 4; other *= 2) all += shuffle_xor(all, other, 0xffffffffu);
        if (m < rows && at.quarter == 0) factor[m] = STREAM_SCALE * rsqrt_of(all / HIDDEN + EPSILON);
    }
};

template <int NT>
DEVICE void put(float* sums, int m, int t, float a, float b, int rows) {
    const Place at;
    if (m < rows) *reinterpret_cast<float2*>(sums + (at.warp * 16 + m) * sums_row(NT) + t * 8 + at.quarter * 2) = float2{a, b};
}

// Eight neighbours of each row of a tile are those of four places of its fragments.
DEVICE void multiply_step(float (&acc)[4], uint4 low, uint4 high, uint4 w) {
    multiply(acc, low.x, high.x, low.y, high.y, w.x, w.y);
    multiply(acc, low.z, high.z, low.w, high.w, w.z, w.w);
}

// The products of all rows with the tiles in `room`: `finish(row, column, value, partner, early(row, column))` for each.
//
// `from` (rows, INNER): the rows, for which this waits. `early`: what finishing needs from memory. `ready()`: waits for the
// weights, which nobody needs any more when this returns. With PAIR the second half of the tiles are the partners of the
// first. `sums` of the warps may lie in the same room. NORM: the rows are normed, by `factor`. MANY: more than 8 rows.
template <int NT, int INNER, bool PAIR, bool NORM, bool MANY, class Early, class Finish, class Ready>
DEVICE void product(const char* room, float* sums, float* factor, const float* squares, int rows, const half_t* from,
                    Early early, Finish finish, Ready ready) {
    constexpr int EACH = steps_each(INNER), COLUMNS = PAIR ? NT * 4 : NT * 8, CHAINS = NT == 1 ? 2 : 1;
    constexpr int TOGETHER = MANY && EACH > 3 ? 3 : EACH;  // steps whose rows are in registers at a time
    const Place at;
    uint4 low[TOGETHER][2], high[TOGETHER][2];
    auto look = [&](int first) {
        const half_t* row = from + at.row * INNER + (at.warp + first * WARPS) * 64 + at.quarter * 8;
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const bool there = at.warp + (first + i) * WARPS < INNER / 64;
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const half_t* own = row + i * WARPS * 64 + j * 32;
                low[i][j] = there && at.row < rows ? fresh(own) : uint4{0, 0, 0, 0};
                high[i][j] = MANY && there && at.row + 8 < rows ? fresh(own + 8 * INNER) : uint4{0, 0, 0, 0};
            }
        }
    };
    NormFactors norm(squares, NORM ? rows : 0);
    auto settle = [&](int first) {
        while (true) {
            Seen seen;
#pragma unroll
            for (int i = 0; i < TOGETHER; i++) {
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    seen.add(low[i][j]);
                    if (MANY) seen.add(high[i][j]);
                }
            }
            const bool normed = NORM && first == 0;
            if (!any_lane(seen.unwritten() || (normed && norm.unwritten()))) break;
            look(first);
            if (normed) norm.look();
        }
    };
    look(0);
    auto needed = early(at.thread / COLUMNS < rows ? at.thread / COLUMNS : 0, at.thread % COLUMNS);
    settle(0);
    if (NORM) norm.write(factor);
    ready();
    // Rows with odd numbers read the halves of a step the other way round: no two rows from the same banks at a time.
    const bool odd = at.row % 2;
    const char* own = room + at.row * INNER * 2 + at.warp * 128 + at.quarter * 16;
    float acc[CHAINS][NT][4] = {};
#pragma unroll
    for (int first = 0; first < EACH; first += TOGETHER) {
        if (first > 0) look(first), settle(first);
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            if (at.warp + (first + i) * WARPS < INNER / 64) {
#pragma unroll
                for (int t = 0; t < NT; t++) {
                    const char* row = own + t * tile_bytes(INNER) + (first + i) * WARPS * 128;
                    const uint4 one = *reinterpret_cast<const uint4*>(row + odd * 64);
                    const uint4 two = *reinterpret_cast<const uint4*>(row + 64 - odd * 64);
                    multiply_step(acc[0][t], low[i][0], high[i][0], odd ? two : one);
                    multiply_step(acc[CHAINS - 1][t], low[i][1], high[i][1], odd ? one : two);
                }
            }
        }
    }
    if (CHAINS == 2) {
#pragma unroll
        for (int c = 0; c < 4; c++) acc[0][0][c] += acc[CHAINS - 1][0][c];
    }
    synchronise();  // nobody reads other sums, or weights that lie there
#pragma unroll
    for (int t = 0; t < NT; t++) {
        put<NT>(sums, at.row, t, acc[0][t][0], acc[0][t][1], rows);
        if (rows > 8) put<NT>(sums, at.row + 8, t, acc[0][t][2], acc[0][t][3], rows);
    }
    synchronise();
    for (int index = at.thread; index < rows * COLUMNS; index += THREADS) {
        const int m = index / COLUMNS, n = index % COLUMNS;
        float value = 0.0f, partner = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            const float* line = sums + (w * 16 + m) * sums_row(NT);
            value += line[n];
            if (PAIR) partner += line[NT * 4 + n];
        }
        if (index >= THREADS) needed = early(m, n);
        const float by = NORM ? factor[m] : 1.0f;
        finish(m, n, value * by, partner * by, needed);
    }
}

struct Nothing {
    DEVICE int operator()(int, int) const { return 0; }
};
