// Gradients of all terms of scores and values, from p and ds of a tile.
// Compiled once per SIMD target.
#if defined(LOCUS_SRC_KERNELS_BACKWARD_TERMS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef LOCUS_SRC_KERNELS_BACKWARD_TERMS_INL_H_
#undef LOCUS_SRC_KERNELS_BACKWARD_TERMS_INL_H_
#else
#define LOCUS_SRC_KERNELS_BACKWARD_TERMS_INL_H_
#endif

#include "kernels/backward/bias-inl.h"
#include "kernels/backward/key_table-inl.h"
#include "kernels/backward/operand_bias-inl.h"
#include "kernels/backward/query_table-inl.h"
#include "kernels/backward/value_table-inl.h"

HWY_BEFORE_NAMESPACE();
namespace locus {
namespace HWY_NAMESPACE {

class TermBackward {
 public:
  TermBackward(const BackwardTables& bp, const Scorer& scorer,
               BackwardTile& tile)
      : call_(bp.packed.call),
        scorer_(scorer),
        t_(tile),
        query_table_(bp, tile),
        key_table_(bp, scorer, query_table_, tile),
        value_table_(bp, scorer, tile),
        bias_(bp, scorer, tile),
        operands_(bp, tile) {}

  // `first` is the first query of the task.
  void BeginHead(int64_t first) {
    key_table_.BeginHead();
    operands_.BeginHead(first);
  }
  void BeginQueries() {
    t_.straight = Straight();
    query_table_.BeginQueries();
    key_table_.BeginQueries();
    value_table_.BeginQueries();
    bias_.BeginQueries();
  }
  // dp += do.Tv[b], before ds is known. dp is indexed by key.
  void AddToDp(const Block& block, int64_t i, int64_t r, Interval keys,
               float* dp) const {
    value_table_.AddToDp(block, i, r, keys, dp);
  }
  // Runs after p and ds of keys [tile, tile + keys) are known.
  void AddKeys(int64_t tile, int64_t keys) {
    const bool by_row = query_table_.by_row() || value_table_.present() ||
                        key_table_.present() || bias_.by_row() ||
                        operands_.present();
    for (int64_t n = 0; n < t_.n_blocks; ++n) {
      const Block& block = t_.blocks[n];
      const TileRows& look = t_.look[n];
      if (look.any.empty()) continue;
      if (bias_.by_block()) bias_.AddBlock(block, n, tile, keys);
      for (int64_t r = 0; by_row && r < block.count; ++r) {
        const Interval seen = Scorer::Vectors(look, r);
        if (!seen.empty()) AddRow(block, n * kRowsI + r, r, tile, seen);
      }
    }
    query_table_.AddTile(tile, keys);
  }
  // Ends a tile of queries; adds their gradients through the tables to d_plain.
  void EndQueries() {
    key_table_.EndQueries();
    query_table_.EndQueries();
    value_table_.EndQueries();
    bias_.EndQueries();
    t_.straight = false;
  }
  void EndHead() { key_table_.EndHead(); }

 private:
  bool Straight() const {
    const Interval any = t_.Any();
    if (any.empty() || !call_.Keys(t_.b).OneRun(any.begin, any.end)) {
      return false;
    }
    for (int64_t i = 1; i < t_.count; ++i) {
      if (t_.Position(i) != t_.Position(0) + i) return false;
    }
    return true;
  }
  void AddRow(const Block& block, int64_t i, int64_t r, int64_t tile,
              Interval keys) {
    const float* ds = t_.Ds(i) - tile;
    if (query_table_.by_row()) query_table_.AddRow(block, i, r, keys, ds);
    if (value_table_.present()) {
      value_table_.AddRow(block, i, r, keys, t_.P(i) - tile);
    }
    if (key_table_.present()) key_table_.AddRow(block, i, r, keys, ds);
    if (bias_.by_row()) bias_.AddRow(block, r, keys, ds);
    if (call_.terms.scale.rows.defined() && key_table_.present()) {
      t_.key_dots[i] += scorer_.KeyTableDot(block, r, keys, ds);
    }
    if (operands_.present()) {
      operands_.AddRow(block, r, Within(keys, block.seen[r]), ds);
    }
  }

  const Call& call_;
  const Scorer& scorer_;
  BackwardTile& t_;
  QueryTableGrad query_table_;
  KeyTableGrad key_table_;
  ValueTableGrad value_table_;
  BiasGrad bias_;
  OperandBiasGrad operands_;
};

}  // namespace HWY_NAMESPACE
}  // namespace locus
HWY_AFTER_NAMESPACE();

#endif  // LOCUS_SRC_KERNELS_BACKWARD_TERMS_INL_H_
