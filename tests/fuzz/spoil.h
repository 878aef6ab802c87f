// Calls with a single error: each must be rejected with a locus::Error.
#ifndef LOCUS_TESTS_FUZZ_SPOIL_H_
#define LOCUS_TESTS_FUZZ_SPOIL_H_

#include <cmath>
#include <limits>
#include <string>

#include "fuzz/random.h"
#include "reference/naive.h"

namespace locus::testing {

// Makes a valid call invalid and describes how; "" if the choice does not
// apply.
inline std::string Spoil(Call& call, Random& random) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  const double infinite = std::numeric_limits<double>::infinity();
  const double bad = random.Pick({double(NAN), infinite, -infinite, 1e300});
  AttentionOptions& o = call.options;
  Terms& t = call.terms;
  const int64_t batch = call.q.size(0), q_len = call.q.size(2),
                k_len = call.k.size(2), dim = call.q.size(3);
  const auto zeros = [&](std::vector<int64_t> shape) {
    return Tensor::Zeros(call.q.dtype(), std::move(shape));
  };
  switch (random.Draw(0, 30)) {
    case 25:
      o.key_bias = zeros({batch, call.q.size(1), k_len + 1});
      return "key bias";
    case 26:
      o.pair_bias = zeros({batch, call.q.size(1) + 2, q_len, k_len});
      return "pair bias";
    case 27:
      call.prefix.assign(static_cast<size_t>(batch), k_len + 1);
      return batch == 0 ? "" : "prefix";
    case 28:
      o.chunk = random.Pick<int64_t>({0, -1, kLeast});
      return "chunk";
    case 29:
      o.mask.shape = {batch, call.q.size(1), q_len + 2, k_len};
      call.pairs.assign(1, 1);
      return "mask";
    case 30:
      t.scale.rows = Tensor::From({1, 1}, std::vector<double>{bad});
      return q_len == 0 ? "" : "row of the scale";
    case 0:
      o.softcap = random.Pick({-1.0, 0.0, bad, 1e-300});
      return "softcap";
    case 1:
      t.scale.scale = bad;
      return "scale";
    case 2:
      o.dropout.rate = random.Pick({-0.1, 1.0, bad});
      return "dropout";
    case 3:
      o.sinks = zeros({call.q.size(1) + 1});
      return "count of sinks";
    case 4:
      o.window = Window{.left = random.Pick<int64_t>({-1, kLeast}), .right = 1};
      return "window";
    case 5:
      call.key_lengths.assign(static_cast<size_t>(batch + 1), 0);
      return "count of key lengths";
    case 6:
      if (batch == 0) return "";
      call.key_lengths.assign(static_cast<size_t>(batch), 0);
      call.key_lengths[0] =
          random.Pick<int64_t>({-1, k_len + 1, kMost, kLeast});
      return "key length";
    case 7:
      call.q_pos.assign(static_cast<size_t>((batch + 1) * q_len + 1), 0);
      return "count of q_positions";
    case 8:
      if (k_len == 0) return "";
      call.k_pos.assign(static_cast<size_t>(k_len), 0);
      call.k_pos[0] = random.Pick<int64_t>({kMost, kLeast});
      return "k_position";
    case 9:
      if (q_len == 0 || k_len == 0) return "";
      call.q_seg.assign(static_cast<size_t>(q_len), 0);
      call.k_seg.clear();
      return "segments of one side";
    case 10:
      call.q = zeros({batch, call.q.size(1), q_len});
      return "rank of q";
    case 11:
      call.k = zeros({batch, call.k.size(1), k_len, dim + 1});
      return "dim of k";
    case 12:
      call.v = zeros({batch, call.k.size(1), k_len + 1, call.v.size(3)});
      return "length of v";
    case 13:
      call.v = call.v.To(DType::kF64);
      return "type of v";
    case 14:
      call.k = zeros({batch, call.q.size(1) + 1, k_len, dim});
      call.v = zeros({batch, call.q.size(1) + 1, k_len, call.v.size(3)});
      return "key heads";
    case 15:
      call.q = zeros({batch, call.q.size(1), q_len, 0});
      call.k = zeros({batch, call.k.size(1), k_len, 0});
      return "head dim 0";
    case 16:
      if (!t.rotate) return "";
      t.rotate->theta.push_back(1.0);
      return "count of frequencies";
    case 17:
      if (!t.rotate || t.rotate->theta.empty()) return "";
      t.rotate->theta[0] = bad;
      return "frequency";
    case 18:
      if (!t.rotate) return "";
      t.rotate->gain = random.Pick({0.0, bad, 1e-200});
      return "gain";
    case 19:
      if (!t.rotate) return "";
      t.rotate->rotary_dim = random.Pick<int64_t>({1, -2, dim + 2, kMost - 1});
      return "rotary_dim";
    case 20:
      if (!t.rotate) return "";
      t.rotate->first_channel = random.Pick<int64_t>({-1, dim + 1, kMost});
      return "first_channel";
    case 21:
      if (!t.rotate) return "";
      t.rotate->axes = {{.divisor = random.Pick<int64_t>({0, -1, kLeast})}};
      return "divisor";
    case 22: {
      auto* table = random.Pick({&t.q_table, &t.k_table, &t.v_table});
      if (!*table) return "";
      (*table)->rows = RandomTensor(
          random.Pick(
              {std::vector<int64_t>{1, (*table)->buckets.count + 1, dim},
               std::vector<int64_t>{call.q.size(1) + 1, (*table)->buckets.count,
                                    (*table)->rows.size(2)},
               std::vector<int64_t>{3}}),
          1);
      return "table";
    }
    case 23:
      if (!t.extra_dot) return "";
      t.extra_dot->first_position = random.Pick<int64_t>({kMost, kLeast});
      return "first position of rows";
    default:
      if (!t.bias) return "";
      if (auto* ramp = std::get_if<BiasRamp>(&*t.bias)) {
        ramp->past[0] = bad;
      } else if (auto* profile = std::get_if<BiasProfile>(&*t.bias)) {
        profile->first_position = random.Pick<int64_t>({kMost, kLeast});
      } else {
        auto& values = std::get<BiasTable>(*t.bias);
        values.values = RandomTensor({1, values.buckets.count + 1}, 1);
      }
      return "bias";
  }
}

}  // namespace locus::testing

#endif  // LOCUS_TESTS_FUZZ_SPOIL_H_
