// Runs a captured .pte on the runtime that ExecuTorch's wheel ships, with its headers and libraries; for karat replay --command.
//
//   E=$(python -c "import executorch; print(executorch.__path__[0])")
//   g++ -std=c++17 -O1 -w -I examples/cpp -I $E/include -I $E/include/executorch/runtime/core/portable_type/c10 \
//     -DC10_USING_CUSTOM_GENERATED_MACROS -o runner examples/cpp/executorch_runner.cpp -L $E/lib -Wl,--no-as-needed \
//     -lexecutorch_kernels_optimized -lexecutorch_backend_xnnpack -lexecutorch -lexecutorch_threadpool -Wl,-rpath,$E/lib
//   karat replay golden_artifacts_….zip --command "./runner {program} {inputs} {outputs}"

#include <algorithm>
#include <iostream>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor_ptr.h>
#include "karat_raw.hpp"

using executorch::aten::ScalarType;
using executorch::aten::SizesType;
using executorch::runtime::EValue;

static ScalarType type_of(const std::string& dtype) {
    if (dtype == "float32") return ScalarType::Float;
    if (dtype == "float64") return ScalarType::Double;
    if (dtype == "int64") return ScalarType::Long;
    if (dtype == "int32") return ScalarType::Int;
    if (dtype == "bool") return ScalarType::Bool;
    throw karat::raw::Error("no such dtype here: " + dtype);
}

static const char* name_of(ScalarType type) {
    switch (type) {
        case ScalarType::Float: return "float32";
        case ScalarType::Double: return "float64";
        case ScalarType::Long: return "int64";
        case ScalarType::Int: return "int32";
        case ScalarType::Bool: return "bool";
        default: throw karat::raw::Error("an output of a dtype that this runner does not know");
    }
}

int main(int, char** words) try {
    karat::raw::Folder given(words[2]);
    executorch::extension::Module module(words[1]);
    std::vector<std::vector<unsigned char>> held;
    std::vector<executorch::extension::TensorPtr> tensors;
    std::vector<EValue> inputs;
    for (const auto& tensor : given.with_role("input")) {
        held.push_back(tensor.in_memory_order());
        std::vector<SizesType> sizes(tensor.shape.begin(), tensor.shape.end()), strides(tensor.strides.begin(), tensor.strides.end());
        tensors.push_back(executorch::extension::make_tensor_ptr(sizes, held.back().data(), {}, strides, type_of(tensor.dtype)));
        inputs.emplace_back(*tensors.back());
    }
    const auto done = module.forward(inputs);
    if (!done.ok()) throw karat::raw::Error("forward failed with error " + std::to_string(static_cast<int>(done.error())));
    karat::raw::Writer outputs(words[3]);
    std::size_t number = 0;
    for (const EValue& value : *done) {
        const auto& tensor = value.toTensor();
        const std::vector<std::uint64_t> shape(tensor.sizes().begin(), tensor.sizes().end());
        outputs.add("output", "expected/" + std::to_string(number++), name_of(tensor.scalar_type()), shape, tensor.const_data_ptr(), tensor.nbytes());
    }
    outputs.close();
} catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
}
