// Backward: with the final out and lse, each pair of pieces gives its own share
// of every gradient. d_q stays; d_k and d_v travel with their block, each rank
// adding its share in turn, and come home from the last one.
//
// A rank's own keys are computed in two parts: the first while the first block
// comes in, the second at the end, while gradients go home.
#include <fmt/format.h>

#include <array>

#include "locus/error.h"
#include "ring/journey.h"
#include "ring/pairs.h"
#include "ring/views.h"

namespace locus::ring {
namespace {

// ------------------------------------------------- gradients of terms, summed

void Add(const std::vector<double>& from, std::vector<double>& to) {
  for (size_t n = 0; n < to.size(); ++n) to[n] += from[n];
}

void Add(const Tensor& from, Tensor& to) {
  if (!to.defined()) return;
  const double* x = from.Data<double>();
  double* y = to.MutableData<double>();
  for (int64_t n = 0; n < to.NumElements(); ++n) y[n] += x[n];
}

void Add(const BiasTableGrads& from, BiasTableGrads& to) {
  Add(from.values, to.values);
}

void Add(const BiasRampGrads& from, BiasRampGrads& to) {
  Add(from.past, to.past);
  Add(from.future, to.future);
}

void Add(const BiasProfileGrads& from, BiasProfileGrads& to) {
  Add(from.distance, to.distance);
  Add(from.row_gain, to.row_gain);
  Add(from.base, to.base);
  Add(from.slope, to.slope);
}

void Add(const TermGrads& from, TermGrads& to) {
  if (to.extra_dot) {
    Add(from.extra_dot->q_rows, to.extra_dot->q_rows);
    Add(from.extra_dot->k_rows, to.extra_dot->k_rows);
  }
  Add(from.q_table, to.q_table);
  Add(from.k_table, to.k_table);
  Add(from.v_table, to.v_table);
  if (!to.bias) return;
  std::visit(
      [&from](auto& kind) {
        Add(std::get<std::remove_reference_t<decltype(kind)>>(*from.bias),
            kind);
      },
      *to.bias);
}

// ------------------------------------------------------ gradients of a block

// d_k and d_v of one rank's keys, f32.
struct KeyGrads {
  Tensor d_k = {};
  Tensor d_v = {};

  static KeyGrads Make(const Call& call, int owner,
                       Tensor (*make)(DType, std::vector<int64_t>)) {
    const Sizes& s = call.sizes;
    const int64_t tokens = call.key_counts[static_cast<size_t>(owner)];
    return {make(DType::kF32, {s.batch, s.kv_heads, tokens, s.head_dim}),
            make(DType::kF32, {s.batch, s.kv_heads, tokens, s.value_dim})};
  }
  void Add(const KeyGrads& share) {
    AddTo(share.d_k, d_k);
    AddTo(share.d_v, d_v);
  }
  Parcel ToParcel() const { return ring::ToParcel({d_k, d_v}); }
};

// Follows the blocks. The owner keeps its own share. The next rank starts the
// sum, each one after it adds its share, and the last one sends it home, where
// the owner's share is added. A sum comes in while the rank computes what it
// will add to it, and leaves while the rank computes the next block.
class GradJourney {
 public:
  GradJourney(const Call& call, Courier& courier, Neighbours ring)
      : call_(call), courier_(courier), ring_(ring) {
    const int hops = HopsOf(ring.rank);
    if (hops == 0) return;
    last_ = (ring.rank + hops) % ring.size;
    home_ = KeyGrads::Make(call, ring.rank, &Tensor::Empty);
    coming_home_ = courier.Receive(home_.ToParcel(), last_, kHomeTag);
  }

  // Starts to receive the sum for the block of this step.
  void Begin(int step) {
    if (step < 2) return;
    sum_ = KeyGrads::Make(call_, ring_.Owner(step), &Tensor::Empty);
    receiving_ = courier_.Receive(sum_.ToParcel(), ring_.Left(), kGradTag);
  }

  // Adds this rank's share to the block of another, and sends the sum away.
  void End(int step, const KeyGrads& share) {
    if (step == 1) {
      sum_ = share;
    } else {
      courier_.Wait(receiving_,
                    fmt::format("gradients from rank {}", ring_.Left()));
      sum_.Add(share);
    }
    courier_.Wait(sending_, kTaken);
    const int owner = ring_.Owner(step);
    sending_ = step < HopsOf(owner)
                   ? courier_.Send(sum_.ToParcel(), ring_.Right(), kGradTag)
                   : courier_.Send(sum_.ToParcel(), owner, kHomeTag);
  }

  // The sums of this rank's own keys, of which it has `own`, once all is sent.
  KeyGrads Finish(const KeyGrads& own) {
    courier_.Wait(sending_, kTaken);
    if (coming_home_ == nullptr) return own;
    courier_.Wait(coming_home_, fmt::format("gradients from rank {}", last_));
    home_.Add(own);
    return home_;
  }

 private:
  static constexpr std::string_view kTaken = "another rank to take gradients";

  int HopsOf(int owner) const { return call_.hops[static_cast<size_t>(owner)]; }

  const Call& call_;
  Courier& courier_;
  Neighbours ring_;
  int last_ = 0;  // who adds the last share to this rank's block
  KeyGrads home_, sum_;
  Courier::Ticket coming_home_, receiving_, sending_;
};

// ------------------------------------------------------------------ one rank

// The first half of a stretch, or what comes after it.
Piece Half(const Call& call, Piece piece, bool first) {
  Chunk& tokens = piece.tokens;
  const int64_t head = tokens.count / 2;
  if (!first) {
    piece.begin += head;
    tokens.first += head * tokens.stride;
  }
  tokens.count = first ? head : tokens.count - head;
  // Given positions may lie anywhere between the bounds of the whole.
  if (!call.k_positions_given) {
    piece.positions = {.lo = tokens.first,
                       .hi = tokens.first + (tokens.count - 1) * tokens.stride};
  }
  return piece;
}

// The keys of this rank in two parts, of which the second may be empty.
struct OwnKeys {
  std::vector<Piece> first = {};
  std::vector<Piece> last = {};

  OwnKeys(const Call& call, const Neighbours& ring)
      : first(call.keys[static_cast<size_t>(ring.rank)]) {
    if (ring.size == 1 || first.empty()) return;
    const Piece piece = first.back();
    if (first.size() > 1) {
      first.pop_back();
      last = {piece};
    } else if (piece.tokens.count > 1) {
      first = {Half(call, piece, /*first=*/true)};
      last = {Half(call, piece, /*first=*/false)};
    }
  }
};

std::string CheckGiven(const Tensor& d_out, const Tensor& q, const Tensor& v,
                       const AttentionResult& forward) {
  if (q.rank() != 4 || v.rank() != 4) return "";  // reported by others
  const std::vector<int64_t> rows = {q.size(0), q.size(1), q.size(2)};
  std::vector<int64_t> shape = rows;
  shape.push_back(v.size(3));
  if (d_out.shape() != shape || forward.out.shape() != shape) {
    return fmt::format("d_out and out must be [{}], got {} and {}",
                       fmt::join(shape, ", "), d_out.Describe(),
                       forward.out.Describe());
  }
  if (forward.lse.shape() != rows || forward.lse.dtype() != DType::kF32) {
    return fmt::format("lse must be f32 [{}], got {}", fmt::join(rows, ", "),
                       forward.lse.Describe());
  }
  return "";
}

// Gradients of the parameters over all ranks: those of each rank's pairs,
// summed in the order of the ranks.
ParamGrads SumParams(const Group& group, const Call& call,
                     const Encoding& encoding, const TermGrads& terms) {
  ParamGrads params = encoding.PullBack(call.shape, terms);
  for (Param& param : params) {
    param.value = param.value.To(DType::kF64);
    group.Sum(std::span(param.value.MutableData<double>(),
                        static_cast<size_t>(param.value.NumElements())));
  }
  return params;
}

}  // namespace

EncodingGrads AttentionBackward(MPI_Comm comm, const Tensor& d_out,
                                const Tensor& q, const Tensor& k,
                                const Tensor& v, const AttentionResult& forward,
                                const Encoding& encoding,
                                const Options& options) {
  const Group group(comm, options.deadline_seconds);
  const Call call =
      Meet(group, q, k, v, encoding, options, CheckGiven(d_out, q, v, forward));
  const Neighbours ring{.rank = group.rank(), .size = group.size()};
  const std::vector<QueryPiece> queries =
      QueryPieces(call, ring.rank, q, options.attention);
  const Tensor d_rows = Convert(d_out, DType::kF32);
  const Tensor out_rows = Convert(forward.out, DType::kF32);
  Tensor d_q = Tensor::Zeros(DType::kF32, q.shape());
  Stats stats;
  TermGrads terms = ZeroGrads(call.terms);
  Courier courier(group);
  const std::shared_ptr<Block> own_block =
      OwnBlock(k, v, ring.rank, options.attention);
  Journey journey(call, courier, ring, own_block);
  GradJourney grad_journey(call, courier, ring);
  // Adds what these keys of a block give to `share`, and to d_q and the terms.
  const auto compute = [&](const Block& block, const std::vector<Piece>& pieces,
                           KeyGrads& share) {
    const auto add = [&](const QueryPiece& rows, const KeyPiece& keys) {
      const AttentionResult given{.out = TokensOf(out_rows, rows.rows),
                                  .lse = TokensOf(forward.lse, rows.rows)};
      const AttentionGrads part = locus::AttentionBackward(
          TokensOf(d_rows, rows.rows), rows.q, keys.k, keys.v, given,
          call.terms, PairOptions(options.attention, rows, keys));
      AddTo(part.d_q, TokensOf(d_q, rows.rows));
      AddTo(part.d_k, TokensOf(share.d_k, keys.rows));
      AddTo(part.d_v, TokensOf(share.d_v, keys.rows));
      Add(part.terms, terms);
    };
    const Stopwatch watch(stats.compute_seconds);
    ForEachPair(call, queries, block, pieces, stats, add);
  };
  const OwnKeys own_keys(call, ring);
  KeyGrads own = KeyGrads::Make(call, ring.rank, &Tensor::Zeros);
  for (int step = 0; step < ring.size; ++step) {
    const std::shared_ptr<Block> block = journey.Begin(step);
    if (step == 0) {
      compute(*block, own_keys.first, own);
    } else if (block != nullptr) {
      grad_journey.Begin(step);
      KeyGrads share = KeyGrads::Make(call, block->owner, &Tensor::Zeros);
      compute(*block, call.keys[static_cast<size_t>(block->owner)], share);
      grad_journey.End(step, share);
    }
    journey.End();
  }
  compute(*own_block, own_keys.last, own);
  own = grad_journey.Finish(own);
  courier.Stop();
  EncodingGrads grads{.d_q = Convert(d_q, q.dtype()),
                      .d_k = Convert(own.d_k, k.dtype()),
                      .d_v = Convert(own.d_v, v.dtype()),
                      .params = SumParams(group, call, encoding, terms)};
  Report(courier, stats, options.stats);
  return grads;
}

}  // namespace locus::ring
