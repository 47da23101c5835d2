// Reads and writes karat's raw form: tensors.txt and one .bin file per tensor. Needs C++17 and nothing else.
//
//   karat::raw::Folder inputs("case/raw");                // looks at the table and at every file's size
//   const auto& x = inputs.at("input", "input/0");        // throws if there is none
//   std::vector<float> values = x.as<float>();            // throws if it is no float32
//
//   karat::raw::Writer outputs("outputs");
//   outputs.add("output", "expected", "float32", x.shape, values.data(), values.size() * sizeof(float));
//   outputs.close();                                      // writes the table; without it there is nothing
//
// The layout is documented in docs/bundles.md. Elements are in C order and little-endian, and so must be the
// machine that this runs on.

#ifndef KARAT_RAW_HPP
#define KARAT_RAW_HPP

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace karat::raw {

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

namespace detail {

constexpr const char* first_line = "karat-raw 1";
constexpr const char* table_name = "tensors.txt";

inline std::uint64_t number(const std::string& digits, const std::string& where) {
    if (digits.empty() || digits.size() > 19 ||
        digits.find_first_not_of("0123456789") != std::string::npos)
        throw Error(where + ": expected a number, found '" + digits + "'");
    return std::stoull(digits);
}

inline std::vector<std::uint64_t> shape(const std::string& text, const std::string& where) {
    std::vector<std::uint64_t> lengths;
    if (text == "-") return lengths;
    std::stringstream parts(text);
    for (std::string part; std::getline(parts, part, 'x');) lengths.push_back(number(part, where));
    if (lengths.empty() || text.back() == 'x')
        throw Error(where + ": expected a shape such as 2x3 or -, found '" + text + "'");
    return lengths;
}

inline std::uint64_t count(const std::vector<std::uint64_t>& shape, const std::string& where) {
    std::uint64_t elements = 1;
    for (std::uint64_t length : shape) {
        if (length != 0 && elements > std::numeric_limits<std::uint64_t>::max() / length)
            throw Error(where + ": expected a shape that fits into 64 bits, found a larger one");
        elements *= length;
    }
    return elements;
}

// Fixed-size dtypes and their size in bytes; 0 for the others, whose elements are left alone.
inline std::size_t item_size(const std::string& dtype) {
    struct Known {
        const char* name;
        std::size_t size;
    };
    static constexpr Known known[] = {
        {"bool", 1},    {"int4", 1},     {"uint4", 1},    {"int8", 1},      {"uint8", 1},
        {"int16", 2},   {"uint16", 2},   {"int32", 4},    {"uint32", 4},    {"int64", 8},
        {"uint64", 8},  {"float16", 2},  {"bfloat16", 2}, {"float32", 4},   {"float64", 8},
        {"complex64", 8}, {"complex128", 16}, {"float8_e4m3fn", 1}, {"float8_e4m3fnuz", 1},
        {"float8_e5m2", 1}, {"float8_e5m2fnuz", 1}, {"float8_e8m0fnu", 1},
    };
    for (const Known& one : known)
        if (dtype == one.name) return one.size;
    return 0;
}

template <class T>
const char* dtype_of() {
    if constexpr (std::is_same_v<T, float>) return "float32";
    else if constexpr (std::is_same_v<T, double>) return "float64";
    else if constexpr (std::is_same_v<T, bool>) return "bool";
    else if constexpr (std::is_same_v<T, std::int8_t>) return "int8";
    else if constexpr (std::is_same_v<T, std::uint8_t>) return "uint8";
    else if constexpr (std::is_same_v<T, std::int16_t>) return "int16";
    else if constexpr (std::is_same_v<T, std::uint16_t>) return "uint16";
    else if constexpr (std::is_same_v<T, std::int32_t>) return "int32";
    else if constexpr (std::is_same_v<T, std::uint32_t>) return "uint32";
    else if constexpr (std::is_same_v<T, std::int64_t>) return "int64";
    else if constexpr (std::is_same_v<T, std::uint64_t>) return "uint64";
    else static_assert(sizeof(T) == 0, "no dtype for this type; read bytes() instead");
}

inline void check_name(const std::string& file, const std::string& where) {
    if (file.empty() || file.front() == '.' || file.find_first_of("/\\") != std::string::npos ||
        file.find('\0') != std::string::npos)
        throw Error(where + ": expected the name of a file beside the table, found '" + file + "'");
}

// Fields are apart by tabs and rows by line ends, so neither may be in one.
inline void check_field(const std::string& field) {
    if (field.find_first_of("\t\r\n") != std::string::npos)
        throw Error("expected a name without tabs and line ends, found '" + field + "'");
}

}  // namespace detail

// One tensor of a folder; its elements are read when asked for.
struct Tensor {
    std::string role;   // input, expected or output
    std::string name;   // input/0, expected/logits
    std::string dtype;  // float32, bfloat16, int64
    std::vector<std::uint64_t> shape;
    std::uint64_t nbytes = 0;
    std::string sha256;  // of the file's bytes; may be empty in outputs
    std::filesystem::path path;

    std::uint64_t elements() const { return detail::count(shape, name); }

    std::vector<unsigned char> bytes() const {
        std::vector<unsigned char> data(static_cast<std::size_t>(nbytes));
        read(data.data());
        return data;
    }

    template <class T>
    std::vector<T> as() const {
        static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has no bytes; read uint8 with bytes()");
        if (dtype != detail::dtype_of<T>())
            throw Error(name + ": expected " + detail::dtype_of<T>() + ", found " + dtype);
        std::vector<T> data(static_cast<std::size_t>(elements()));
        read(data.data());
        return data;
    }

private:
    void read(void* target) const {
        std::ifstream file(path, std::ios::binary);
        file.read(static_cast<char*>(target), static_cast<std::streamsize>(nbytes));
        if (!file || static_cast<std::uint64_t>(file.gcount()) != nbytes)
            throw Error(path.string() + ": expected " + std::to_string(nbytes) + " bytes, could not read them");
    }
};

// The tensors of a folder; every line of its table and every file's size has been looked at.
class Folder {
public:
    explicit Folder(const std::filesystem::path& folder) : folder_(folder) {
        const std::filesystem::path table = folder / detail::table_name;
        std::ifstream lines(table, std::ios::binary);
        if (!lines) throw Error(table.string() + ": expected the table of the tensors, found none");
        std::string line;
        if (!next(lines, line) || line != detail::first_line)
            throw Error(table.string() + ": expected the first line '" + detail::first_line + "', found '" +
                        line.substr(0, 80) + "'");
        for (std::size_t number = 2; next(lines, line); ++number)
            if (!line.empty()) take(line, table.string() + ", line " + std::to_string(number));
    }

    const std::vector<Tensor>& tensors() const { return tensors_; }

    std::vector<Tensor> with_role(const std::string& role) const {
        std::vector<Tensor> found;
        for (const Tensor& tensor : tensors_)
            if (tensor.role == role) found.push_back(tensor);
        return found;
    }

    const Tensor& at(const std::string& role, const std::string& name) const {
        for (const Tensor& tensor : tensors_)
            if (tensor.role == role && tensor.name == name) return tensor;
        throw Error(folder_.string() + ": expected a tensor '" + name + "' with the role " + role +
                    ", found none among " + std::to_string(tensors_.size()));
    }

private:
    static bool next(std::ifstream& lines, std::string& line) {
        if (!std::getline(lines, line)) return false;
        if (!line.empty() && line.back() == '\r') line.pop_back();
        return true;
    }

    void take(const std::string& line, const std::string& where) {
        std::vector<std::string> fields(1);
        for (char c : line) {
            if (c == '\t') fields.emplace_back();
            else fields.back().push_back(c);
        }
        if (fields.size() != 7)
            throw Error(where + ": expected 7 fields apart by tabs, found " + std::to_string(fields.size()));
        Tensor tensor;
        tensor.role = fields[0];
        tensor.name = fields[1];
        tensor.dtype = fields[2];
        tensor.shape = detail::shape(fields[3], where);
        tensor.nbytes = detail::number(fields[4], where);
        tensor.sha256 = fields[5];
        detail::check_name(fields[6], where);
        tensor.path = folder_ / fields[6];
        check_size(tensor, where);
        if (!seen_.insert(tensor.role + '\t' + tensor.name).second)
            throw Error(where + ": expected each tensor once, found '" + tensor.name + "' twice");
        tensors_.push_back(std::move(tensor));
    }

    static void check_size(const Tensor& tensor, const std::string& where) {
        const std::size_t item = detail::item_size(tensor.dtype);
        const std::uint64_t elements = detail::count(tensor.shape, where);
        if (item != 0 && (elements > std::numeric_limits<std::uint64_t>::max() / item ||
                          elements * item != tensor.nbytes))
            throw Error(where + ": expected " + std::to_string(elements) + " elements of " +
                        std::to_string(item) + " bytes, found " + std::to_string(tensor.nbytes) + " bytes");
        std::error_code failed;
        const auto found = std::filesystem::file_size(tensor.path, failed);
        if (failed || found != tensor.nbytes)
            throw Error(tensor.path.string() + ": expected a file of " + std::to_string(tensor.nbytes) +
                        " bytes, found " + (failed ? failed.message() : std::to_string(found)));
    }

    std::filesystem::path folder_;
    std::vector<Tensor> tensors_;
    std::set<std::string> seen_;
};

// Writes a folder that Folder and karat can read.
class Writer {
public:
    explicit Writer(std::filesystem::path folder) : folder_(std::move(folder)) {
        std::filesystem::create_directories(folder_);
    }

    // sha256 of the bytes is optional: karat takes an empty one from a program without a hash.
    void add(const std::string& role, const std::string& name, const std::string& dtype,
             const std::vector<std::uint64_t>& shape, const void* data, std::uint64_t nbytes,
             const std::string& sha256 = "") {
        for (const std::string* field : {&role, &name, &dtype, &sha256}) detail::check_field(*field);
        const std::size_t item = detail::item_size(dtype);
        if (item != 0 && (nbytes % item != 0 || detail::count(shape, name) != nbytes / item))
            throw Error(name + ": expected " + std::to_string(detail::count(shape, name)) + " elements of " +
                        std::to_string(item) + " bytes, found " + std::to_string(nbytes) + " bytes");
        const std::string file = role + "." + std::to_string(count_++) + ".bin";
        detail::check_name(file, name);
        std::ofstream out(folder_ / file, std::ios::binary | std::ios::trunc);
        out.write(static_cast<const char*>(data), static_cast<std::streamsize>(nbytes));
        out.close();
        if (!out) throw Error((folder_ / file).string() + ": expected to write " + std::to_string(nbytes) + " bytes");
        std::string lengths;
        for (std::uint64_t length : shape) lengths += (lengths.empty() ? "" : "x") + std::to_string(length);
        table_ << role << '\t' << name << '\t' << dtype << '\t' << (lengths.empty() ? "-" : lengths) << '\t'
               << nbytes << '\t' << sha256 << '\t' << file << '\n';
    }

    void close() {
        std::ofstream out(folder_ / detail::table_name, std::ios::binary | std::ios::trunc);
        out << detail::first_line << '\n' << table_.str();
        out.close();
        if (!out) throw Error((folder_ / detail::table_name).string() + ": expected to write the table");
    }

private:
    std::filesystem::path folder_;
    std::ostringstream table_;
    std::size_t count_ = 0;
};

}  // namespace karat::raw

#endif  // KARAT_RAW_HPP
