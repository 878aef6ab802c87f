// The peer of short calls: softmax(scale Q K^T + B) V with the scores in
// memory, by a good GEMM (OpenBLAS) and a vectorised softmax.
#ifndef LOCUS_BENCH_MATERIALISED_H_
#define LOCUS_BENCH_MATERIALISED_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace locus::bench {

// Softmax of scale * x[0 .. count) + bias[0 .. count) in place; bias may be
// null.
void SoftmaxRow(float* x, const float* bias, int64_t count, float scale);

// OpenBLAS takes a CPU newer than itself for an old one (Prescott) and is then
// several times slower. It chooses when it is loaded: this starts the program
// anew with the choice that fits the SIMD target `simd`, where that is needed
// and the user has made none. Returns the name of the choice in use.
std::string SettleBlasCore(const std::string& simd, char** argv);

// How the peer uses its threads: inside each product, or one head a thread.
enum class Split { kProducts, kHeads };

// Attention on [heads, length, dim] arrays; all memory is allocated here, once.
class Materialised {
 public:
  // `bias` is [heads, length, length] or empty.
  Materialised(int64_t heads, int64_t length, int64_t dim, int threads,
               std::vector<float> bias);
  ~Materialised();

  // Sets the threads of OpenBLAS; before the first Run with this split.
  void Use(Split split);
  const std::vector<float>& Run(const float* q, const float* k, const float* v);

 private:
  class Helpers;

  void Head(int64_t h, const float* q, const float* k, const float* v);

  int64_t heads_, length_, dim_;
  int threads_;
  Split split_ = Split::kProducts;
  std::vector<float> bias_, scores_, out_;
  std::unique_ptr<Helpers> helpers_;
};

}  // namespace locus::bench

#endif  // LOCUS_BENCH_MATERIALISED_H_
