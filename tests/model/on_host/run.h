// Runs the kernel with all its blocks; comes behind the kernel's source.

static const Step* work;

static void body() {
    decode_step(*work);
    current->done = true;
    pause();
}

extern "C" const int mail_of_a_row = MAIL, size_of_step = sizeof(Step);

constexpr int MOST_ROUNDS = 200000;  // ten times what the tests need
constexpr size_t STACK = 96 << 10;

// With a `seed` that is not 0, warps are held up at random, now and then for long. Returns 1 if the fibers do not come to an end, 0 else.
extern "C" int run_step(const Step* step, int count, int late, unsigned seed) {
    work = step, blocks = count, late_copies = late, unrest = seed != 0, chance.seed(seed);
    std::vector<std::unique_ptr<Block>> all;
    std::vector<std::unique_ptr<Fiber>> fibers;
    for (int b = 0; b < count; b++) {
        all.push_back(std::make_unique<Block>());
        Block& block = *all.back();
        block.index = b;
        block.room.assign(SHARED_BYTES / 16, uint4{0x7e007e00u, 0x7e007e00u, 0x7e007e00u, 0x7e007e00u});  // not a number
        for (int t = 0; t < THREADS + 32; t++) {
            fibers.push_back(std::make_unique<Fiber>());
            Fiber& fiber = *fibers.back();
            fiber.block = &block, fiber.thread = t, fiber.stack.reset(new char[STACK]);
            getcontext(&fiber.beginning);
            fiber.beginning.uc_stack.ss_sp = fiber.stack.get(), fiber.beginning.uc_stack.ss_size = STACK;
            makecontext(&fiber.beginning, body, 0);
        }
    }
    std::vector<int> until(count * (THREADS / 32 + 1));  // each warp is held up
    size_t left = fibers.size();
    for (int round = 0; left; round++) {
        if (round == MOST_ROUNDS) return 1;
        left = 0;
        for (size_t i = 0; i < fibers.size(); i++) {
            Fiber& fiber = *fibers[i];
            if (unrest && i % 32 == 0 && until[i / 32] <= round && chance() % 256 == 0) until[i / 32] = round + chance() % 256;
            if (fiber.done) continue;
            left++;
            if (until[i / 32] <= round && !waits(fiber)) resume(fiber);
        }
    }
    return 0;
}
