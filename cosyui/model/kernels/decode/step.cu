// The phases of a step, what becomes of their products, and the kernel.

struct Rotation {
    float low, high, cos, sin;
    int slot, position;
};

DEVICE void finish_qkv(const Step& s, const Mail& mail, int layer, int unit, int m, int n, float one, float two,
                       const Rotation& r) {
    const int head = unit / 4, i = unit % 4 * 8 + n;
    one += r.low, two += r.high;
    if (head < HEADS + KV) {
        const float turned = one * r.cos - two * r.sin;
        two = two * r.cos + one * r.sin, one = turned;
    }
    half_t* out = mail.qkv + m * QKV + head * D + i;
    out[0] = to_half(one), out[D / 2] = to_half(two);
    if (head >= HEADS) {
        half_t* kept = head < HEADS + KV ? s.keys : s.values;
        kept += (((size_t(layer) * s.slots + r.slot) * KV + (head - HEADS) % KV) * CAPACITY + r.position) * D + i;
        kept[0] = to_half(one), kept[D / 2] = to_half(two);
    }
}

DEVICE Rotation early_qkv(const Step& s, const half_t* bias, int unit, int m, int n, const unsigned* where) {
    const int head = unit / 4, i = unit % 4 * 8 + n;
    const half_t* own = bias + head * D + i;
    return {to_float(own[0]), to_float(own[D / 2]), s.turn[m * D + i], s.turn[m * D + D / 2 + i], int(where[m] >> 16), int(where[m] & 0xffffu)};
}

struct Stream {
    float x, norm;
};

// A column of the residual stream and the next norm's input; eight neighbours leave the sum of their squares.
DEVICE void finish_stream(const Step& s, half_t* h, float* squares, int unit, int m, int n, float value, const Stream& before) {
    const int at = m * HIDDEN + unit * 8 + n;
    const float x = before.x + value;
    s.x[at] = x;
    h[at] = to_half(x * before.norm * (1.0f / STREAM_SCALE));
    float square = x * x;
    const unsigned mask = 0xffu << (thread_index() & 24);
    for (int other = 1; other < 8; other *= 2) square += shuffle_xor(square, other, mask);
    if (n == 0) squares[m * SQUARES + unit] = square;
}

// One block's way through a step.
struct Walk {
    const Step& s;
    char *a, *b;
    float *sums, *factor;
    unsigned* where;  // slot and position of each row
    Exchange* with;
    unsigned finished[PHASES];

    // Runs `work(unit, ready)` for this block's units of a phase; `ready()` waits for the weights.
    template <Phase PHASE, class Work>
    DEVICE void each_unit(int units, Work work) {
        for (int unit = block_index(); unit < units; unit += block_count()) {
            work(unit, [&] { wait_for(with->there + PHASE, finished[PHASE] & 1); });
            if (PHASE == GATE_PHASE) writes_done(), synchronise();  // its sums are where weights will be
            finish<PHASE>();
        }
    }

    // Told when all threads are through with the weights, and with sums in their room.
    template <Phase PHASE>
    DEVICE void finish() {
        finished[PHASE]++;
        if (thread_index() == 0) tell(with->finished + PHASE, finished[PHASE]);
    }

    DEVICE void qkv(const Layer& w, int layer, const half_t* h, const float* squares) {
        const Mail mail(s.mail, layer);
        each_unit<QKV_PHASE>(UNITS_QKV, [&](int unit, auto ready) {
            product<2, HIDDEN, true, true, true>(
                b, reinterpret_cast<float*>(b + MIXED_AT), factor, squares, s.rows, h,
                [&](int m, int n) { return early_qkv(s, w.bias, unit, m, n, where); },
                [&](int m, int n, float one, float two, const Rotation& r) {
                    finish_qkv(s, mail, layer, unit, m, n, one, two, r);
                },
                ready);
        });
        if (layer > 0) wipe(Mail(s.mail, layer - 1).product, s.rows * MLP, UNITS_QKV);
    }

    // A product that is added to the residual stream: `h` and `squares` of the next norm.
    template <Phase PHASE, int INNER, bool MANY>
    DEVICE void to_stream(const char* room, const half_t* from, const half_t* norm, float scale, half_t* h, float* squares) {
        each_unit<PHASE>(UNITS_STREAM, [&](int unit, auto ready) {
            product<1, INNER, false, false, MANY>(
                room, sums, nullptr, nullptr, s.rows, from,
                [&](int m, int n) { return Stream{s.x[m * HIDDEN + unit * 8 + n], to_float(norm[unit * 8 + n])}; },
                [&](int m, int n, float value, float, const Stream& before) {
                    finish_stream(s, h, squares, unit, m, n, value * scale, before);
                },
                ready);
        });
    }

    DEVICE void out(const Layer& w, int layer) {
        const Mail mail(s.mail, layer);
        to_stream<OUT_PHASE, QUERY, true>(b + OUT_AT, mail.mixed, w.mlp_norm, 1.0f, mail.h_out, mail.squares_out);
        if (layer > 0) {
            const Mail before(s.mail, layer - 1);
            wipe(before.h_down, s.rows * HIDDEN, UNITS_STREAM);
            wipe(before.squares_down, s.rows * SQUARES, UNITS_STREAM);
        }
    }

    DEVICE void gate(const Layer& w, int layer) {
        const Mail mail(s.mail, layer);
        float* room = reinterpret_cast<float*>(a);
        each_unit<GATE_PHASE>(UNITS_GATE, [&](int unit, auto ready) {
            product<2 * GATE_TILES, HIDDEN, true, true, true>(
                a, room, factor, mail.squares_out, s.rows, mail.h_out, Nothing{},
                [&](int m, int n, float gate, float up, int) {
                    const int column = unit * GATE_TILES * 8 + n;
                    const float value = gate / (1.0f + exp_of(-gate)) * up * (1.0f / GATE_SCALE);
                    if (column < MLP) mail.product[m * MLP + column] = to_half(value);
                },
                ready);
        });
        wipe(mail.qkv, s.rows * QKV, UNITS_GATE);
        wipe(mail.mixed, s.rows * QUERY, UNITS_GATE);
        wipe(mail.parts, s.rows * PARTS_ROW, UNITS_GATE);
    }

    DEVICE void down(const Layer& w, int layer) {
        const Mail mail(s.mail, layer);
        const bool final = layer == LAYERS - 1;
        half_t* h = final ? s.h : mail.h_down;
        float* squares = final ? s.squares : mail.squares_down;
        if (s.rows > 8) to_stream<DOWN_PHASE, MLP, true>(b, mail.product, w.next_norm, GATE_SCALE, h, squares);
        else to_stream<DOWN_PHASE, MLP, false>(b, mail.product, w.next_norm, GATE_SCALE, h, squares);
        wipe(mail.h_out, s.rows * HIDDEN, UNITS_STREAM);
        wipe(mail.squares_out, s.rows * SQUARES, UNITS_STREAM);
    }

    DEVICE void logits() {
        float* room = reinterpret_cast<float*>(b);
        each_unit<GATE_PHASE>(UNITS_LOGITS, [&](int unit, auto ready) {
            product<LOGIT_TILES, HIDDEN, false, true, true>(
                a, room, factor, s.squares, s.rows, s.h, Nothing{},
                [&](int m, int n, float value, float, int) {
                    const int column = unit * LOGIT_TILES * 8 + n;
                    if (column < VOCABULARY) s.logits[size_t(m) * VOCABULARY + column] = value;
                },
                ready);
        });
        wipe(Mail(s.mail, LAYERS - 1).product, s.rows * MLP, UNITS_LOGITS);
    }
};

extern "C" KERNEL(THREADS + 32) decode_step(GRID_CONSTANT const Step s) {
    DYNAMIC_SHARED(room);
    char *b = room + ROOM_A, *c = b + ROOM_B, *rest = c + ROOM_C;
    float* factor = reinterpret_cast<float*>(rest);
    unsigned* where = reinterpret_cast<unsigned*>(factor + MOST_ROWS);
    Exchange* with = reinterpret_cast<Exchange*>(where + MOST_ROWS);
    if (thread_index() == THREADS) {
        for (int i = 0; i < PHASES; i++) prepare(with->there + i), with->finished[i] = 0;
        for (int i = 0; i < DEPTH; i++) prepare(with->flow + i);
    }
    for (int m = thread_index(); m < s.rows; m += THREADS + 32) where[m] = unsigned(s.slot[m]) << 16 | unsigned(s.at[m]);
    everybody();
    if (thread_index() >= THREADS) {
        if (thread_index() == THREADS) Supply{s, room, b, where, with, 0, 0, 0}.run();
        return;
    }
    Walk walk{s, room, b, reinterpret_cast<float*>(c), factor, where, with, {}};
    for (int layer = 0; layer < LAYERS; layer++) {
        const Layer& w = s.layers[layer];
        const Mail before(s.mail, layer > 0 ? layer - 1 : 0);
        walk.qkv(w, layer, layer > 0 ? before.h_down : s.h, layer > 0 ? before.squares_down : s.squares);
        attention(s, layer, where, Mail(s.mail, layer), reinterpret_cast<float*>(b + MIXED_AT));
        writes_done();
        synchronise();
        walk.finish<ATTENTION_PHASE>();
        walk.out(w, layer);
        walk.gate(w, layer);
        walk.down(w, layer);
    }
    meet(s.meeting);
    walk.logits();
}
