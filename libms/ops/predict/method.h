// The names that --models takes: a model, or an ensemble of models. The ensembles are those of Liu et al., "Prediction
// of GPU failures under deep learning workloads" (arXiv 2201.11853).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "predict/model.h"

namespace ms::predict {

enum class Combine { single, parallel, cascade };

struct Method {
  std::string name = {};
  Combine combine = Combine::single;
  std::vector<const ModelKind*> members = {};
};

// The methods of these names: "gbdt", "parallel", or "all". A model that this machine cannot train is left out of "all"
// and of ensembles, with a line in `notes`; named by itself it is Error("predict.model", user), like a name that does
// not exist.
std::vector<Method> methods_of(std::string_view names, std::vector<std::string>& notes);
// The method that a model file names, with the members that it has. Error("predict.file", user).
Method method_of(const std::string& name, const std::vector<std::string>& members);

// Each name and its meaning, for messages: "gbdt: ...; parallel: ...".
std::string method_docs();

// One score a row from those of each member, for all rows of one day. parallel: the worst of its ranks among the
// members, so that the K best are in every member's top set. cascade: the first member clears all but the top fifth,
// which the second orders.
std::vector<float> combined(const Method& method, std::span<const std::vector<float>> members);

}  // namespace ms::predict
