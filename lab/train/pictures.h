// Small matrices to draw: the trained encoding, and the attention of a model.
#ifndef LOCUS_LAB_TRAIN_PICTURES_H_
#define LOCUS_LAB_TRAIN_PICTURES_H_

#include <torch/types.h>

#include <vector>

#include "lab/train/model.h"
#include "lab/train/run.h"

namespace locus::lab {

// The encoding's picture for every layer with its own parameters, then the
// attention weights of each layer and head for tokens int64 [1, L].
//
// A picture of an encoding has at most 128 rows and columns, none of which is
// averaged: of longer axes some are omitted, and x_values and y_values list
// which are present. A picture of attention has at most 64 x 64 numbers; larger
// ones are averaged, and their title says so.
std::vector<PictureData> DrawPictures(const Model& model,
                                      const torch::Tensor& tokens);

}  // namespace locus::lab

#endif  // LOCUS_LAB_TRAIN_PICTURES_H_
