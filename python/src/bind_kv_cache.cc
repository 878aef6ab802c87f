// KvCache: keys and values of the tokens so far.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <new>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "bind.h"
#include "locus/locus.h"
#include "options.h"

namespace locus::python {
namespace {

using nb::literals::operator""_a;

constexpr Word<DType> kTypes[] = {{"float32", DType::kF32},
                                  {"bfloat16", DType::kBF16},
                                  {"float16", DType::kF16}};

void Make(KvCache* self, int64_t kv_heads, int64_t head_dim,
          std::optional<int64_t> value_dim, int64_t batch,
          const std::string& dtype, int64_t capacity,
          std::optional<int64_t> q_heads) {
  new (self) KvCache({.batch = batch,
                      .kv_heads = kv_heads,
                      .head_dim = head_dim,
                      .value_dim = value_dim.value_or(0),
                      .dtype = WordOf("dtype", dtype, kTypes),
                      .capacity = capacity,
                      .q_heads = q_heads.value_or(0)});
}

void Append(KvCache& self, const nb::object& k, const nb::object& v,
            const nb::object& encoding, const nb::object& positions,
            const nb::object& lengths, std::optional<int> threads) {
  const Borrowed k_in = BorrowData("k", k), v_in = BorrowData("v", v);
  const Tensor& keys = k_in.tensor();
  std::vector<int64_t> at, sizes;
  if (keys.rank() == 4) {
    at = Integers("positions", positions,
                  {{keys.size(2)}, {keys.size(0), keys.size(2)}});
    sizes = Integers("lengths", lengths, {{keys.size(0)}});
  }
  const AppendOptions options{
      .positions = at, .lengths = sizes, .threads = ThreadsOf(threads)};
  const Encoding& position = EncodingOf(encoding);
  const nb::gil_scoped_release release;
  self.Append(k_in, v_in, position, options);
}

nb::object Decode(const KvCache& self, const nb::object& q,
                  const nb::object& encoding, bool causal,
                  std::optional<double> scale, const nb::object& window,
                  std::optional<double> softcap, const nb::object& q_positions,
                  const nb::object& key_lengths, bool return_lse,
                  std::optional<int> threads) {
  const Borrowed q_in = BorrowData("q", q);
  Options options({.causal = causal,
                   .scale = scale,
                   .window = window,
                   .softcap = softcap,
                   .q_positions = q_positions,
                   .key_lengths = key_lengths,
                   .threads = threads},
                  q_in, q_in);
  options.options.return_lse = return_lse;
  const Encoding& position = EncodingOf(encoding);
  AttentionResult result;
  {
    const nb::gil_scoped_release release;
    result = self.Decode(q_in, position, options.options);
  }
  nb::object out = ToArray(result.out, q);
  if (!return_lse) return out;
  return nb::make_tuple(out, ToArray(result.lse, q));
}

// A copy: views of the cache would end with the next append.
nb::object Copied(const Tensor& view) {
  Tensor copy = view.To(DType::kF32).To(view.dtype());
  if (copy.dtype() == DType::kF32 && view.IsContiguous()) {
    copy = view.To(DType::kF64).To(DType::kF32);
  }
  return ToNumpy(copy);
}

}  // namespace

void BindKvCache(nb::module_& m) {
  nb::class_<KvCache>(
      m, "KvCache",
      "Keys and values of the tokens so far, for decoding token by "
      "token.\n\n"
      "Keys are stored rotated, once, when they are appended. dtype "
      "(\"float32\", \"bfloat16\" or \"float16\") is storage; arithmetic is in "
      "float32. q_heads: of the encodings, where they differ from kv_heads. A "
      "cache whose keys were rotated by one table refuses another, see "
      "rerotate.")
      .def("__init__", &Make, "kv_heads"_a, "head_dim"_a,
           "value_dim"_a = nb::none(), nb::kw_only(), "batch"_a = 1,
           "dtype"_a = "float32", "capacity"_a = 0, "q_heads"_a = nb::none())
      .def("append", &Append, "k"_a, "v"_a, "encoding"_a = nb::none(),
           nb::kw_only(), "positions"_a = nb::none(), "lengths"_a = nb::none(),
           "threads"_a = nb::none(),
           "Adds unrotated keys k [B, Hkv, n, D] and values v [B, Hkv, n, "
           "Dv].\n\n"
           "positions: integers [n] or [B, n], by default each sequence goes "
           "on by one. lengths [B]: only so many tokens of a sequence.")
      .def("decode", &Decode, "q"_a, "encoding"_a = nb::none(), nb::kw_only(),
           "causal"_a = true, "scale"_a = nb::none(), "window"_a = nb::none(),
           "softcap"_a = nb::none(), "q_positions"_a = nb::none(),
           "key_lengths"_a = nb::none(), "return_lse"_a = false,
           "threads"_a = nb::none(),
           "Attends q [B, Hq, Lq, D], unrotated, over everything cached. By "
           "default the queries are the last Lq tokens of their sequence.")
      .def(
          "rerotate",
          [](KvCache& self, const nb::object& encoding, int64_t length) {
            const Encoding& position = EncodingOf(encoding);
            const nb::gil_scoped_release release;
            self.Rerotate(position, length);
          },
          "encoding"_a, "length"_a = 0,
          "Turns the cached keys to another table, K' = R_new R_old^-1 K, for "
          "scalings that change with the length.")
      .def("truncate", &KvCache::Truncate, "n"_a,
           "Keeps the first n tokens of every sequence.")
      .def("clear", &KvCache::Clear, "Forgets all tokens; keeps the memory.")
      .def("__len__",
           [](const KvCache& self) { return static_cast<size_t>(self.size()); })
      .def(
          "length", [](const KvCache& self, int64_t b) { return self.size(b); },
          "b"_a = 0, "Tokens of one sequence.")
      .def(
          "positions",
          [](const KvCache& self, int64_t b) {
            nb::list list;
            for (const int64_t p : self.positions(b)) list.append(p);
            return list;
          },
          "b"_a = 0, "Positions of the tokens of one sequence.")
      .def_prop_ro("capacity", &KvCache::capacity)
      .def_prop_ro("table_id", &KvCache::table_id,
                   "What turned the keys: 0 if nothing did.")
      .def_prop_ro(
          "keys", [](const KvCache& self) { return Copied(self.keys()); },
          "A copy of the stored keys, [B, Hkv, size, D].")
      .def_prop_ro(
          "values", [](const KvCache& self) { return Copied(self.values()); },
          "A copy of the stored values, [B, Hkv, size, Dv].");
}

}  // namespace locus::python
