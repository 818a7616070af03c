// A session of ONNX Runtime on the execution provider, in C++:
//
//     session PROVIDER MODEL [KEY=VALUE ...]
//
// PROVIDER is libonnxruntime_providers_hipdnn_rs.so, MODEL a network with one input of floats and fixed extents, KEY an option
// of the provider. Prints the first output, a value a line.
#include <onnxruntime_cxx_api.h>

#include <iostream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

static void run(const char* provider, const char* model, const std::unordered_map<std::string, std::string>& settings) {
    Ort::Env env{ORT_LOGGING_LEVEL_WARNING, "session"};
    env.RegisterExecutionProviderLibrary("hipdnn_rs", provider);
    std::vector<Ort::ConstEpDevice> devices;
    for (const Ort::ConstEpDevice& device : env.GetEpDevices())
        if (device.EpName() == std::string_view{"HipDnnRsExecutionProvider"}) devices.push_back(device);
    if (devices.empty()) throw std::runtime_error("the provider offers no device here");
    devices.resize(1);  // a session has one of several GPUs

    Ort::SessionOptions options;
    options.AppendExecutionProvider_V2(env, devices, settings);
    Ort::Session session{env, model, options};

    const std::vector<std::string> inputs = session.GetInputNames(), outputs = session.GetOutputNames();
    const auto type = session.GetInputTypeInfo(0);
    const std::vector<int64_t> shape = type.GetTensorTypeAndShapeInfo().GetShape();
    const auto count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>{});
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); i++) values[i] = static_cast<float>(i % 7) - 3;
    const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    const auto input = Ort::Value::CreateTensor<float>(memory, values.data(), values.size(), shape.data(), shape.size());

    const char *const input_name = inputs.front().c_str(), *const output_name = outputs.front().c_str();
    const auto results = session.Run(Ort::RunOptions{}, &input_name, &input, 1, &output_name, 1);
    const float* result = results.front().GetTensorData<float>();
    const size_t length = results.front().GetTensorTypeAndShapeInfo().GetElementCount();
    for (size_t i = 0; i < length; i++) std::cout << result[i] << '\n';
}

int main(int count, char** words) try {
    if (count < 3) throw std::runtime_error("expected PROVIDER MODEL [KEY=VALUE ...]");
    std::unordered_map<std::string, std::string> settings;
    for (int i = 3; i < count; i++) {
        const std::string word = words[i];
        const size_t at = word.find('=');
        if (at == std::string::npos) throw std::runtime_error("expected KEY=VALUE, got " + word);
        settings[word.substr(0, at)] = word.substr(at + 1);
    }
    run(words[1], words[2], settings);
    return 0;
} catch (const std::exception& problem) {
    std::cerr << problem.what() << '\n';
    return 1;
}
