"""Pooling layers."""

from __future__ import annotations

from tstatic.nn.layer.functional_layer import functional_layer

MaxPool1D = functional_layer("MaxPool1D", "max_pool1d", names=("input",))
MaxPool2D = functional_layer("MaxPool2D", "max_pool2d")
MaxPool3D = functional_layer("MaxPool3D", "max_pool3d")
AvgPool1D = functional_layer("AvgPool1D", "avg_pool1d")
AvgPool2D = functional_layer("AvgPool2D", "avg_pool2d")
AvgPool3D = functional_layer("AvgPool3D", "avg_pool3d")
AdaptiveAvgPool1D = functional_layer("AdaptiveAvgPool1D", "adaptive_avg_pool1d", names=("input",))
AdaptiveAvgPool2D = functional_layer("AdaptiveAvgPool2D", "adaptive_avg_pool2d")
AdaptiveAvgPool3D = functional_layer("AdaptiveAvgPool3D", "adaptive_avg_pool3d")
AdaptiveMaxPool1D = functional_layer("AdaptiveMaxPool1D", "adaptive_max_pool1d", names=("input",))
AdaptiveMaxPool2D = functional_layer("AdaptiveMaxPool2D", "adaptive_max_pool2d")
AdaptiveMaxPool3D = functional_layer("AdaptiveMaxPool3D", "adaptive_max_pool3d")
MaxUnPool1D = functional_layer("MaxUnPool1D", "max_unpool1d", inputs=2)
MaxUnPool2D = functional_layer("MaxUnPool2D", "max_unpool2d", inputs=2)
MaxUnPool3D = functional_layer("MaxUnPool3D", "max_unpool3d", inputs=2)
