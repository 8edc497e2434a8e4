// Kernels with a mistake each, named like those that sass.py has rows for; it must find them.
template <class T, int kL>
__global__ void indexes_an_array(float4* x, const int* at, int n) {
  float4 values[32] = {};
  for (int i = 0; i < n; ++i) values[at[kL * i] & 31].x += 1;  // an index that only the running kernel knows
#pragma unroll
  for (int i = 0; i < 32; ++i) __stwb(x + i, values[i]);
}

template <class T, int kL>
__global__ void stores_elements(T* y, const T* x) {
  const float4 v = reinterpret_cast<const float4*>(x)[threadIdx.x];
  T* to = y + threadIdx.x * (kL + 1);
  to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

// The block's sums take more registers than four blocks a multiprocessor leave.
template <class T, int kL>
__global__ void column_partials(float4* y, const float4* x, int rows) {
  float4 sums[32] = {};
  for (int row = 0; row < rows; ++row) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const float4 v = x[(row * 32 + i) * 256 + threadIdx.x];
      sums[i].x += v.x, sums[i].y += v.y, sums[i].z += v.z, sums[i].w += v.w;
    }
  }
#pragma unroll
  for (int i = 0; i < 32; ++i) __stwb(y + i * 256 + threadIdx.x, sums[i]);
}

// Each thread has its own maxima for the word that all threads share.
template <class T, int kL>
__global__ void amax_kernel(unsigned* amax, const uint4* x) {
  const uint4 v = x[threadIdx.x];
  atomicMax(amax, v.x), atomicMax(amax + 1, v.y);
}

template __global__ void indexes_an_array<float, 4>(float4*, const int*, int);
template __global__ void stores_elements<float, 4>(float*, const float*);
template __global__ void column_partials<float, 4>(float4*, const float4*, int);
template __global__ void amax_kernel<float, 4>(unsigned*, const uint4*);
