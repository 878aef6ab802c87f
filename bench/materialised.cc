#include "bench/materialised.h"

#include <cblas.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <thread>
#include <utility>

namespace locus::bench {

// Threads that sleep between calls and take every n-th head in one.
class Materialised::Helpers {
 public:
  explicit Helpers(int count) {
    for (int t = 0; t < count; ++t) {
      threads_.emplace_back([this, t] { Serve(t + 1); });
    }
  }
  ~Helpers() {
    task_ = nullptr;
    Start();
    for (std::thread& thread : threads_) thread.join();
  }
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

  // task(0) here, task(1) .. task(count) on the helpers.
  void Run(const std::function<void(int)>& task) {
    task_ = &task;
    left_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
    Start();
    task(0);
    for (int n = left_.load(); n != 0; n = left_.load()) left_.wait(n);
  }

 private:
  void Start() {
    round_.fetch_add(1);
    round_.notify_all();
  }
  void Serve(int thread) {
    for (unsigned round = 0;; ++round) {
      round_.wait(round);
      if (task_ == nullptr) return;
      (*task_)(thread);
      if (left_.fetch_sub(1) == 1) left_.notify_one();
    }
  }

  const std::function<void(int)>* task_ = nullptr;
  std::atomic<unsigned> round_{0};
  std::atomic<int> left_{0};
  std::vector<std::thread> threads_;
};

std::string SettleBlasCore(const std::string& simd, char** argv) {
  std::string core = openblas_get_corename();
  const char* better = simd == "AVX3"   ? "SkylakeX"
                       : simd == "AVX2" ? "Haswell"
                                        : nullptr;
  constexpr const char* kChoice = "OPENBLAS_CORETYPE";
  if (core == "Prescott" && better != nullptr &&
      std::getenv(kChoice) == nullptr &&
      setenv(kChoice, better, /*replace=*/0) == 0) {
    execv("/proc/self/exe", argv);
  }
  return core;
}

Materialised::Materialised(int64_t heads, int64_t length, int64_t dim,
                           int threads, std::vector<float> bias)
    : heads_(heads),
      length_(length),
      dim_(dim),
      threads_(threads),
      bias_(std::move(bias)),
      scores_(static_cast<size_t>(heads * length * length)),
      out_(static_cast<size_t>(heads * length * dim)),
      helpers_(std::make_unique<Helpers>(threads - 1)) {}

Materialised::~Materialised() = default;

void Materialised::Use(Split split) {
  split_ = split;
  openblas_set_num_threads(split == Split::kProducts ? threads_ : 1);
}

void Materialised::Head(int64_t h, const float* q, const float* k,
                        const float* v) {
  const int n = static_cast<int>(length_), d = static_cast<int>(dim_);
  const int64_t tokens = h * length_ * dim_;
  float* scores = scores_.data() + h * length_ * length_;
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, d, 1.0F,
              q + tokens, d, k + tokens, d, 0.0F, scores, n);
  const float* bias =
      bias_.empty() ? nullptr : bias_.data() + h * length_ * length_;
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim_));
  for (int64_t i = 0; i < length_; ++i) {
    SoftmaxRow(scores + i * length_,
               bias == nullptr ? nullptr : bias + i * length_, length_, scale);
  }
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, d, n, 1.0F, scores,
              n, v + tokens, d, 0.0F, out_.data() + tokens, d);
}

const std::vector<float>& Materialised::Run(const float* q, const float* k,
                                            const float* v) {
  if (split_ == Split::kProducts || threads_ == 1 || heads_ == 1) {
    for (int64_t h = 0; h < heads_; ++h) Head(h, q, k, v);
    return out_;
  }
  helpers_->Run([&](int thread) {
    for (int64_t h = thread; h < heads_; h += threads_) Head(h, q, k, v);
  });
  return out_;
}

}  // namespace locus::bench
