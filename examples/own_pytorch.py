"""Bring your own PyTorch: a circuit as a layer that trains inside a network, and gradients with respect to data."""

import numpy as np
import torch
from sklearn.datasets import make_moons
from torch import nn

import circurve as cc

torch.manual_seed(0)
torch.set_num_threads(1)
train, test = (torch.tensor(make_moons(1000, noise=0.08, random_state=seed)[0], dtype=torch.float64) for seed in (0, 1))

# A circuit with few hidden states, trained by EM as usual.
circuit = cc.hclt(train, units=4)
model = cc.fit(circuit, train, epochs=20, seed=0, valid=False, precision="float64", progress=False).model
print(f"EM alone: {model.log_prob(test).mean():.2f} nats per test row")


class Flow(nn.Module):
    """An invertible map of the plane with a known change of volume: two affine couplings."""

    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 2)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # (N, 2) -> (N, 2), (N,)
        """The image of each row, and the logarithm of the change of volume there."""
        a, b, change = x[:, :1], x[:, 1:], 0
        for net in self.nets:
            log_scale, shift = net(a).chunk(2, dim=1)
            a, b = b * log_scale.tanh().exp() + shift, a
            change = change + log_scale.tanh().squeeze(1)
        return torch.cat([a, b], dim=1), change


# The circuit as the last layer: log p(x) = log p_circuit(f(x)) + log |det f'(x)|. Both train together.
flow, layer = Flow().double(), cc.torch_module(model)
optimizer = torch.optim.Adam([*flow.parameters(), *layer.parameters()], lr=0.01)
print(f"{sum(p.numel() for p in layer.parameters())} parameters of the circuit, without bounds, take part")
for step in range(201):
    rows, change = flow(train)
    loss = -(layer(rows) + change).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step:3}: loss {loss.item():.2f}")
with torch.no_grad():
    rows, change = flow(test)
    print(f"network and circuit: {(layer(rows) + change).mean():.2f} nats per test row")

# Back to an ordinary model, which answers every question about the plane behind the network.
trained = layer.to_model()
print(f"as a model again: {np.mean(trained.log_prob(rows.numpy()) + change.numpy()):.2f}")

# Gradients with respect to data: walk from a point off the moons to where rows are probable.
point = torch.tensor([[0.5, 1.5]], dtype=torch.float64, requires_grad=True)
for _ in range(30):
    (slope,) = torch.autograd.grad(model.log_prob(point).sum(), point)
    point = (point + 0.02 * slope / slope.norm()).detach().requires_grad_()
start = torch.tensor([[0.5, 1.5]], dtype=torch.float64)
print(f"log p rises from {model.log_prob(start).item():.1f} to {model.log_prob(point).item():.1f} in 30 steps")

# What would lose a gradient is an error that says what to do.
try:
    model.log_prob(point, backend="tree")
except cc.OptionError as error:
    print(f"error: {error}")
