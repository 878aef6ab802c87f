// Small matrices worth drawing: what an encoding has become, and what a model
// attends to.
#ifndef LOCUS_LAB_TRAIN_PICTURES_H_
#define LOCUS_LAB_TRAIN_PICTURES_H_

#include <torch/types.h>

#include <vector>

#include "lab/train/model.h"
#include "lab/train/run.h"

namespace locus::lab {

// The encoding's picture of every layer that has its own, then what each layer
// and head attends to on tokens int64 [1, L].
//
// A picture of an encoding has at most 128 rows and columns, and each of them
// is a real one: of longer axes some are left out, and x_values and y_values
// tell which are there. A picture of attention has at most 64 x 64 numbers;
// larger ones are averaged, and their title says so.
std::vector<PictureData> DrawPictures(const Model& model,
                                      const torch::Tensor& tokens);

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_PICTURES_H_
