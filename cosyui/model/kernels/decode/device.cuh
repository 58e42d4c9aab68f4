// What the step needs of a GPU beyond C++: types, copies, tensor cores, memory that blocks share. From sm_90 on.

#define DEVICE __device__ __forceinline__
#define APART __device__ __noinline__  // not worth being there many times
#define KERNEL(threads) __global__ void __launch_bounds__(threads, 1)
#define GRID_CONSTANT __grid_constant__
#define DYNAMIC_SHARED(name) extern __shared__ __align__(128) char name[]
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif

struct half_t {  // float16, or bfloat16
    unsigned short bits;
};

DEVICE float float_of(unsigned bits) {
#if BFLOAT16
    return __uint_as_float(bits << 16);
#else
    float out;
    asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"((unsigned short)bits));
    return out;
#endif
}

DEVICE unsigned to_bits(float x) {
    unsigned short out;
#if BFLOAT16
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out) : "f"(x));
#else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out) : "f"(x));
#endif
    return out;
}

DEVICE float to_float(half_t x) { return float_of(x.bits); }
DEVICE half_t to_half(float x) { return {(unsigned short)to_bits(x)}; }
DEVICE float low_half(unsigned pair) { return float_of(pair & 0xffffu); }
DEVICE float high_half(unsigned pair) { return float_of(pair >> 16); }

DEVICE float exp_of(float x) { return __expf(x); }
DEVICE float rsqrt_of(float x) { return rsqrtf(x); }
DEVICE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }

// Where a thread stands, read anew: what is derived from it shall not be kept in registers from one phase to the next.
DEVICE int thread_index() {
    int out;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(out));
    return out;
}
DEVICE int block_index() {
    int out;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(out));
    return out;
}
DEVICE int block_count() { return gridDim.x; }

// The warps that compute wait for each other; all threads of the block, once.
DEVICE void synchronise() { asm volatile("bar.sync 1, 448;" ::: "memory"); }
DEVICE void everybody() { __syncthreads(); }
DEVICE bool any_lane(bool x) { return __any_sync(0xffffffffu, x); }
DEVICE unsigned bits_of(float x) { return __float_as_uint(x); }
DEVICE unsigned highest_halves(unsigned a, unsigned b) { return __vmaxu2(a, b); }
DEVICE float shuffle(float x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
DEVICE float shuffle_xor(float x, int other, unsigned lanes) { return __shfl_xor_sync(lanes, x, other); }

// acc (16 x 8) += a (16 x 16) times b (16 x 8), in a warp's fragments.
DEVICE void multiply(float (&acc)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
#if BFLOAT16
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#endif
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// A register of every lane is a row's two neighbours in a matrix of 8 x 8; afterwards, of its transpose.
DEVICE unsigned transposed(unsigned x) {
    unsigned out;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(x));
    return out;
}

// Copies into shared memory that complete by themselves, for which all threads of a block wait turn by turn.
typedef unsigned long long Arrival;

DEVICE unsigned shared_address(const void* at) { return __cvta_generic_to_shared(at); }
DEVICE void prepare(Arrival* at) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(at)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
DEVICE void expect_bytes(Arrival* at, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(at)), "r"(bytes) : "memory");
}
DEVICE void arrive(Arrival* at) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(at)) : "memory");
}
DEVICE void copy_bytes(char* to, const char* from, unsigned bytes, Arrival* at) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(at))
                 : "memory");
}
// Has memory brought into the second cache.
DEVICE void warm_up(const half_t* from, unsigned bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
// Between what threads wrote to a room and a copy into it.
DEVICE void writes_done() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE void wait_for(Arrival* at, unsigned parity) {
    asm volatile(
        "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra again; }" ::"r"(
            shared_address(at)),
        "r"(parity)
        : "memory");
}

// A word of shared memory that one thread tells others.
DEVICE void tell(unsigned* to, unsigned value) {
    asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(shared_address(to)), "r"(value) : "memory");
}
DEVICE unsigned peek(const unsigned* from) {
    unsigned out;
    asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(out) : "r"(shared_address(from)) : "memory");
    return out;
}

// Reads what another block may write at the same time, word by word.
DEVICE uint4 fresh(const half_t* from) {
    uint4 out;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
                 : "l"(from));
    return out;
}
DEVICE float fresh(const float* from) {
    float out;
    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(out) : "l"(from));
    return out;
}

DEVICE float2 fresh_pair(const float* from) {
    float2 out;
    asm volatile("ld.relaxed.gpu.global.v2.f32 {%0,%1}, [%2];" : "=f"(out.x), "=f"(out.y) : "l"(from));
    return out;
}

DEVICE unsigned load_acquire(const unsigned* from) {
    unsigned out;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(out) : "l"(from) : "memory");
    return out;
}
DEVICE void add_release(unsigned* to, unsigned value) {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
DEVICE void pause() {}
