// The benchmarks by name: each of these registers a family with Google
// Benchmark. See main.cc.
#ifndef LOCUS_BENCH_FAMILIES_H_
#define LOCUS_BENCH_FAMILIES_H_

namespace locus::bench {

// AttnFwd/<encoding>/<dtype>/<full|causal>/L:<length>/D:<dim>/H:<heads> and
// AttnBwd/..., for every encoding of the list that acts in attention.
void RegisterAttention(int threads);

// Decode/<encoding>/<dtype>/L:<cached>/D:<dim>/H:<query heads>/K:<kv heads>:
// one token, for every encoding of the list that acts in attention.
// Rotate/<layout>/<dtype>/L:<length>/D:<dim>/H:<query heads>/K:<kv heads>: q
// and k in place.
void RegisterStreams(int threads);

}  // namespace locus::bench

#endif  // LOCUS_BENCH_FAMILIES_H_
