// Do kernels with stacks work in conditional nodes of CUDA graphs? Nothing of sardonyx takes part.
//
//   nvcc -arch=sm_90 -O2 -o conditional_stacks conditional_stacks.cu
//   ./conditional_stacks KIND WAIT            compute-sanitizer --tool memcheck ./conditional_stacks KIND WAIT
//
// KIND: 0 for kernels in the graph itself, 1 in an IF node, 2 in a WHILE node. WAIT: whether the host waits for the
// kernel with a larger stack before the graph comes. Prints "fine", or what is wrong. docs/gpu.md has what was found.
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                             \
  do {                                                                                          \
    cudaError_t code = (call);                                                                  \
    if (code) { printf("line %d: %s\n", __LINE__, cudaGetErrorString(code)); exit(1); }         \
  } while (0)

// Adds 1 to each element, by way of N words of local memory.
template <int N> __global__ void add(float* x, int count, int seed) {
  float local[N];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  for (int k = 0; k < N; k++) local[(k * seed) % N] = x[i] + (k * seed) % N;
  float sum = 0;
  for (int k = 0; k < 8; k++) {
    int at = (k * 31 * seed + i) % N;
    sum += local[at] - at;
  }
  x[i] = sum / 8 + 1;
}

__global__ void turn(long* trips, int first, cudaGraphConditionalHandle handle) {
  if (threadIdx.x || blockIdx.x) return;
  trips[1] = first ? 0 : trips[1] + 1;
  cudaGraphSetConditional(handle, trips[1] < trips[0]);
}

static cudaGraph_t graph_of(cudaStream_t s, const cudaGraphNode_t** before, const cudaGraphEdgeData** edges, size_t* count) {
  cudaStreamCaptureStatus status;
  cudaGraph_t graph;
  CHECK(cudaStreamGetCaptureInfo(s, &status, nullptr, &graph, before, edges, count));
  return graph;
}

int main(int, char** given) {
  int kind = atoi(given[1]), waits = atoi(given[2]);
  const int count = 40000;
  const dim3 threads(128), blocks((count + 127) / 128);
  cudaStream_t s, inner;
  CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&inner, cudaStreamNonBlocking));
  float *x, *y;
  long* trips;
  CHECK(cudaMalloc(&x, 4 * count));
  CHECK(cudaMalloc(&y, 4 * count));
  CHECK(cudaMalloc(&trips, 16));
  CHECK(cudaMemset(x, 0, 4 * count));
  CHECK(cudaMemset(y, 0, 4 * count));

  CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  if (kind) {
    const cudaGraphNode_t* before;
    const cudaGraphEdgeData* edges;
    size_t number;
    cudaGraphConditionalHandle handle;
    CHECK(cudaGraphConditionalHandleCreate(&handle, graph_of(s, &before, &edges, &number), 0, 0));
    turn<<<1, 32, 0, s>>>(trips, 1, handle);
    cudaGraphNodeParams wanted = {};
    wanted.type = cudaGraphNodeTypeConditional;
    wanted.conditional.handle = handle;
    wanted.conditional.type = kind == 1 ? cudaGraphCondTypeIf : cudaGraphCondTypeWhile;
    wanted.conditional.size = 1;
    cudaGraph_t outer = graph_of(s, &before, &edges, &number);
    cudaGraphNode_t node;
    CHECK(cudaGraphAddNode(&node, outer, before, edges, number, &wanted));
    CHECK(cudaStreamUpdateCaptureDependencies(s, &node, nullptr, 1, cudaStreamSetCaptureDependencies));
    cudaGraph_t body = wanted.conditional.phGraph_out[0];
    CHECK(cudaStreamBeginCaptureToGraph(inner, body, nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal));
    for (int k = 0; k < (kind == 1 ? 3 : 1); k++) add<64><<<blocks, threads, 0, inner>>>(x, count, 7);
    if (kind == 2) turn<<<1, 32, 0, inner>>>(trips, 0, handle);
    CHECK(cudaStreamEndCapture(inner, &body));
  } else {
    for (int k = 0; k < 3; k++) add<64><<<blocks, threads, 0, s>>>(x, count, 7);
  }
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  CHECK(cudaStreamEndCapture(s, &graph));
  CHECK(cudaGraphInstantiate(&ready, graph, 0));
  long three = 3;
  CHECK(cudaMemcpy(trips, &three, 8, cudaMemcpyHostToDevice));

  for (int round = 1; round <= 5; round++) {
    if (round == 3) add<512><<<blocks, threads, 0, s>>>(y, count, 7);
    if (round == 4) add<2048><<<blocks, threads, 0, s>>>(y, count, 7);
    if (round == 5) add<4096><<<blocks, threads, 0, s>>>(y, count, 7);
    if (waits) CHECK(cudaStreamSynchronize(s));
    CHECK(cudaGraphLaunch(ready, s));
    CHECK(cudaStreamSynchronize(s));
    float found;
    CHECK(cudaMemcpy(&found, x + count - 1, 4, cudaMemcpyDeviceToHost));
    if (found != 3 * round) printf("replay %d: %g, not %d\n", round, found, 3 * round);
  }
  printf("fine\n");
}
