// The benchmarks by name. Each of these registers a family with Google
// Benchmark; see main.cc.
#ifndef LOCUS_BENCH_ATTENTION_BENCH_H_
#define LOCUS_BENCH_ATTENTION_BENCH_H_

namespace locus::bench {

// AttnFwd/<encoding>/<dtype>/<full|causal>/L:<length>/D:<dim>/H:<heads> and
// AttnBwd/..., for every encoding of the list that acts in attention.
void RegisterAttention(int threads);

}  // namespace locus::bench

#endif  // LOCUS_BENCH_ATTENTION_BENCH_H_
