// A runner for `karat replay --command "./runner {program} {inputs} {outputs}"`, as small as one can be.
//
// The program is a text file of two numbers, a and b; of every float32 input x the output is a * x + b. Outputs
// are named as the expected ones of a capture are: a single one `expected`, several `expected/0`, `expected/1`.

#include <fstream>
#include <iostream>

#include "karat_raw.hpp"

namespace {

struct Program {
    float a = 0, b = 0;

    explicit Program(const char* path) {
        std::ifstream file(path);
        if (!(file >> a >> b))
            throw karat::raw::Error(std::string(path) + ": expected two numbers, found something else");
    }
};

void run(const Program& program, const karat::raw::Folder& inputs, karat::raw::Writer& outputs) {
    const auto tensors = inputs.with_role("input");
    if (tensors.empty()) throw karat::raw::Error("expected at least one input, found none");
    for (std::size_t index = 0; index < tensors.size(); ++index) {
        std::vector<float> values = tensors[index].as<float>();
        for (float& value : values) value = program.a * value + program.b;
        const std::string name = tensors.size() == 1 ? "expected" : "expected/" + std::to_string(index);
        outputs.add("output", name, "float32", tensors[index].shape, values.data(),
                    values.size() * sizeof(float));
    }
    outputs.close();
}

}  // namespace

int main(int count, char** words) {
    if (count != 4) {
        std::cerr << "usage: runner PROGRAM INPUTS OUTPUTS\n";
        return 2;
    }
    try {
        karat::raw::Writer outputs(words[3]);
        run(Program(words[1]), karat::raw::Folder(words[2]), outputs);
    } catch (const std::exception& error) {
        std::cerr << "runner: " << error.what() << '\n';
        return 1;
    }
    return 0;
}
