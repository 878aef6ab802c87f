// Scratch memory aligned for any vector.
#ifndef LOCUS_SRC_CORE_BUFFER_H_
#define LOCUS_SRC_CORE_BUFFER_H_

#include <cstdint>
#include <utility>

namespace locus {

// An uninitialised array of floats on a 64-byte boundary: one cache line, and
// the widest vector. Large ones come from and return to a store that outlives
// the call: fresh pages cost more than the work of a short call.
class FloatBuffer {
 public:
  FloatBuffer() = default;
  explicit FloatBuffer(int64_t count) { Resize(count); }
  FloatBuffer(FloatBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  FloatBuffer& operator=(FloatBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  ~FloatBuffer();

  // Contents are lost when it grows; it never shrinks. Throws std::bad_alloc.
  void Resize(int64_t count);
  float* data() { return data_; }
  const float* data() const { return data_; }
  int64_t capacity() const { return capacity_; }

 private:
  float* data_ = nullptr;
  int64_t capacity_ = 0;  // floats
};

}  // namespace locus

#endif  // LOCUS_SRC_CORE_BUFFER_H_
